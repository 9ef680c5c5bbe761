#include <edgewise/data/examples/masked_text.h>
#include <edgewise/data/examples/token_text.h>

#include <algorithm>

#include <ATen/Functions.h>

#include "data/generators/uniform_below.h"
#include "kernels/philox.h"

namespace edgewise::data {
namespace {

constexpr uint32_t kMaskLayer = 102;  // apart from the streams of other data
constexpr int64_t kPlaceMultiple = 16;
constexpr double kMasked = 0.8, kDrawn = 0.1;  // of the chosen tokens; the rest is kept

TextReader masked_reader_of(const std::filesystem::path& folder) {
  const std::filesystem::path file = token_examples_path(folder);
  TORCH_CHECK_VALUE(std::filesystem::exists(file), "masked_text: expected ", file.string(),
                    "; there is none. Make it with: edgewise data text FILE --out ", folder.string());
  return TextReader::load(text_reader_path(folder));
}

// A piece with some tokens hidden.
struct Hidden {
  std::vector<int32_t> tokens;
  std::vector<int64_t> places, labels;
};

Hidden hide(std::vector<int32_t> tokens, const TextReader& reader, double rate, kernels::RowStream stream) {
  Hidden result{.tokens = std::move(tokens), .places = {}, .labels = {}};
  const SpecialIds& special = reader.tokenizer().special();
  for (size_t place = 0; place < result.tokens.size(); ++place) {
    int32_t& token = result.tokens[place];
    if (token == special.begin || token == special.end || token == special.pad) continue;
    if (stream.next_uniform() >= rate) continue;
    result.places.push_back(static_cast<int64_t>(place));
    result.labels.push_back(token);
    const double way = stream.next_uniform();
    if (way < kMasked)
      token = reader.mask();
    else if (way < kMasked + kDrawn)
      token = static_cast<int32_t>(uniform_below(stream, static_cast<uint64_t>(reader.vocabulary())));
  }
  return result;
}

}  // namespace

MaskedText::MaskedText(const std::filesystem::path& folder, const MaskedTextOptions& options)
    : MaskedText(masked_reader_of(folder), load_token_examples(folder, masked_reader_of(folder)), options) {}

MaskedText::MaskedText(TextReader reader, TokenExamples examples, const MaskedTextOptions& options)
    : reader_(std::move(reader)), examples_(std::move(examples)), options_(options) {
  TORCH_CHECK_VALUE(options.length >= 8 && options.mask_rate > 0 && options.mask_rate <= 1,
                    "masked_text: expected data.length of at least 8 and data.mask_rate in (0, 1]; got ",
                    options.length, " and ", options.mask_rate);
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest})
    TORCH_CHECK_VALUE(size(split) > 0, "masked_text: expected at least ", tokens_per_piece(),
                      " tokens, one piece, in the ", to_string(split), " part of ", examples_.source,
                      "; it has ", examples_.part(split).tokens.size(),
                      ". Use a longer text or a smaller data.length.");
}

int64_t MaskedText::tokens_per_piece() const {
  return options_.length - (reader_.begin() ? 1 : 0) - (reader_.end() ? 1 : 0);
}

int64_t MaskedText::size(Split split) const {
  return std::ssize(examples_.part(split).tokens) / tokens_per_piece();
}

std::vector<int32_t> MaskedText::piece(Split split, int64_t index) const {
  const int64_t count = tokens_per_piece();
  const auto first = examples_.part(split).tokens.begin() + index * count;
  std::vector<int32_t> result(static_cast<size_t>(options_.length));
  std::copy(first, first + count, result.begin() + (reader_.begin() ? 1 : 0));
  if (reader_.begin()) result.front() = *reader_.begin();
  if (reader_.end()) result.back() = *reader_.end();
  return result;
}

Batch MaskedText::batch(Split split, std::span<const int64_t> indices) const {
  const int64_t pieces = size(split), items = std::ssize(indices);
  TORCH_CHECK_VALUE(items > 0, name(), ": expected at least one index in a batch; got none");
  std::vector<Hidden> rows;
  int64_t most = 1;
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && (split == Split::kTrain || index < pieces), name(),
                      ": expected an index from 0",
                      split == Split::kTrain ? "" : c10::str(" to ", pieces - 1), " of split ",
                      to_string(split), "; got ", index);
    const kernels::RowStream stream(
        kernels::stream_key(static_cast<uint64_t>(split), static_cast<uint64_t>(index / pieces), kMaskLayer,
                            index % pieces, 0, kernels::Purpose::kData),
        0);
    rows.push_back(hide(piece(split, index % pieces), reader_, options_.mask_rate, stream));
    most = std::max(most, std::ssize(rows.back().places));
  }
  const int64_t length = options_.length;
  most = std::min((most + kPlaceMultiple - 1) / kPlaceMultiple * kPlaceMultiple, length);
  const at::Tensor tokens = at::empty({items, length}, at::kLong),
                   places = at::zeros({items, most}, at::kLong),
                   labels = at::full({items, most}, -1, at::kLong);
  for (int64_t item = 0; item < items; ++item) {
    const Hidden& row = rows[static_cast<size_t>(item)];
    std::ranges::copy(row.tokens, tokens.mutable_data_ptr<int64_t>() + item * length);
    std::ranges::copy(row.places, places.mutable_data_ptr<int64_t>() + item * most);
    std::ranges::copy(row.labels, labels.mutable_data_ptr<int64_t>() + item * most);
  }
  Batch batch;
  batch.towers.push_back({.tokens = tokens});
  batch.labels = labels;
  batch.more[kPlaces] = places;
  return batch;
}

std::vector<Baseline> MaskedText::baselines(Split split) const {
  return {{"token frequencies alone", frequency_loss(examples_, split, vocabulary())}};
}

std::string MaskedText::summary() const {
  const TokenExamples::Part& train = examples_.part(Split::kTrain);
  return examples_.source + ", " + std::to_string(train.tokens.size()) + " tokens (" +
         std::string(reader_.tokenizer().kind()) + " of " + std::to_string(vocabulary()) + " ids) of " +
         std::to_string(train.bytes) + " bytes, in pieces of " + std::to_string(options_.length);
}

}  // namespace edgewise::data
