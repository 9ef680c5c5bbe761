#include <edgewise/data/examples/labelled_text.h>

#include <algorithm>

#include <ATen/Functions.h>

#include "data/check_indices.h"

namespace edgewise::data {
namespace {

constexpr int64_t kTextPadMultiple = 16;

TextReader reader_of(const std::filesystem::path& folder) {
  const std::filesystem::path file = token_examples_path(folder);
  TORCH_CHECK_VALUE(
      std::filesystem::exists(file), "labelled_text: expected ", file.string(),
      "; there is none. Make it with: edgewise data tsv FILE --text COLUMN --label COLUMN --out ",
      folder.string());
  return TextReader::load(text_reader_path(folder));
}

}  // namespace

LabelledText::LabelledText(const std::filesystem::path& folder) : LabelledText(reader_of(folder)) {
  TORCH_CHECK_VALUE(reader_.options().answer != AnswerKind::kNone,
                    "labelled_text: expected texts with labels; ", folder.string(),
                    " has none. Train on it with data.name = masked_text");
  examples_ = load_token_examples(folder, reader_);
  find_begins();
}

LabelledText::LabelledText(TextReader reader, TokenExamples examples)
    : reader_(std::move(reader)), examples_(std::move(examples)) {
  find_begins();
}

void LabelledText::find_begins() {
  for (size_t part = 0; part < begins_.size(); ++part) {
    int64_t begin = 0;
    begins_[part].clear();
    for (const int32_t length : examples_.parts[part].lengths) {
      TORCH_CHECK_VALUE(length <= max_length(), "labelled_text: expected examples of at most ", max_length(),
                        " tokens, as their reader says; found one of ", length);
      begins_[part].push_back(begin);
      begin += length;
    }
  }
}

int64_t LabelledText::classes() const {
  return answers_numbers() ? 1 : std::ssize(reader_.options().classes);
}

int64_t LabelledText::length(Split split, int64_t index) const {
  return examples_.part(split).lengths[static_cast<size_t>(index)];
}

int64_t LabelledText::line(Split split, int64_t index) const {
  return examples_.part(split).lines[static_cast<size_t>(index)];
}

std::string LabelledText::summary() const {
  const TextReaderOptions& options = reader_.options();
  return (options.reads_pairs() ? "pairs of texts" : "texts") + std::string(" with ") +
         (answers_numbers() ? "a number" : "one of " + std::to_string(classes()) + " labels") + " from " +
         examples_.source + ", " + std::string(reader_.tokenizer().kind()) + " of " +
         std::to_string(vocabulary()) + " ids, at most " + std::to_string(max_length()) + " tokens";
}

Batch LabelledText::batch(Split split, std::span<const int64_t> indices) const {
  check_indices(*this, split, indices);
  const TokenExamples::Part& part = examples_.part(split);
  std::vector<std::span<const int32_t>> rows;
  for (const int64_t index : indices)
    rows.push_back(
        std::span(part.tokens)
            .subspan(static_cast<size_t>(begins_[static_cast<size_t>(split)][static_cast<size_t>(index)]),
                     static_cast<size_t>(length(split, index))));
  Batch batch = text_batch(rows, reader_);
  const TextReaderOptions& options = reader_.options();
  batch.labels = at::empty({std::ssize(indices)}, answers_numbers() ? at::kFloat : at::kLong);
  for (size_t item = 0; item < indices.size(); ++item) {
    const double answer = part.answers[static_cast<size_t>(indices[item])];
    if (answers_numbers())
      batch.labels.mutable_data_ptr<float>()[item] =
          static_cast<float>((answer - options.mean) / options.scale);
    else
      batch.labels.mutable_data_ptr<int64_t>()[item] = static_cast<int64_t>(answer);
  }
  return batch;
}

Batch text_batch(const std::vector<std::span<const int32_t>>& rows, const TextReader& reader) {
  int64_t longest = 1;
  for (const auto& row : rows) longest = std::max(longest, std::ssize(row));
  const int64_t rounded = (longest + kTextPadMultiple - 1) / kTextPadMultiple * kTextPadMultiple;
  const int64_t length = std::min(rounded, reader.options().max_length), items = std::ssize(rows);
  const at::Tensor tokens = at::full({items, length}, reader.padding(), at::kLong);
  const at::Tensor mask = at::zeros({items, length}, at::kBool);
  for (int64_t item = 0; item < items; ++item) {
    const std::span<const int32_t> row = rows[static_cast<size_t>(item)];
    std::ranges::copy(row, tokens.mutable_data_ptr<int64_t>() + item * length);
    std::fill_n(mask.mutable_data_ptr<bool>() + item * length, row.size(), true);
  }
  Batch batch;
  batch.towers.push_back({.tokens = tokens, .mask = mask});
  batch.trim_multiple = kTextPadMultiple;
  return batch;
}

}  // namespace edgewise::data
