#include <edgewise/data/examples/translation_pairs.h>

#include <algorithm>
#include <numeric>

#include <ATen/Functions.h>
#include <edgewise/io/atomic_file.h>
#include <nlohmann/json.hpp>

#include "data/generators/uniform_below.h"
#include "data/text/each_line.h"
#include "kernels/philox.h"

namespace edgewise::data {
namespace {

constexpr const char* kTranslationFormat = "edgewise.translation.1";
constexpr const char* kTranslationFile = "translation.json";
constexpr uint32_t kBatchLayer = 103;  // apart from the streams of other data

std::filesystem::path references_path(const std::filesystem::path& folder, const std::string& name) {
  return folder / "references" / (name + ".txt");
}

void read_references(TestSet& set, const std::filesystem::path& folder) {
  const std::filesystem::path file = references_path(folder, set.name);
  each_line(file, [&](std::string_view line) {
    if (line.ends_with('\n')) line.remove_suffix(1);
    set.references.emplace_back(line);
  });
  TORCH_CHECK_VALUE(std::ssize(set.references) == set.pairs, file.string(), ": expected ", set.pairs,
                    " lines, as ", kTranslationFile, " says; found ", set.references.size(),
                    ". Make it again with: edgewise data translation");
}

TranslationSets read_sets(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kTranslationFile;
  TORCH_CHECK_VALUE(std::filesystem::exists(file), "translation: expected ", file.string(),
                    "; there is none. Make it with: edgewise data translation ... --out ", folder.string());
  using nlohmann::json;
  const json read = json::parse(io::read_file(file), nullptr, /*allow_exceptions=*/false);
  TORCH_CHECK_VALUE(read.is_object() && read.value("format", json()) == kTranslationFormat, file.string(),
                    ": expected an object of JSON of the format ", kTranslationFormat,
                    "; found something else. Make it again with: edgewise data translation");
  TranslationSets sets;
  try {
    sets.source = read.at("source").get<std::string>();
    sets.target = read.at("target").get<std::string>();
    sets.validation.pairs = read.at("validation").get<int64_t>();
    for (const json& each : read.at("tests"))
      sets.tests.push_back(
          {.name = each.at("name").get<std::string>(), .pairs = each.at("pairs").get<int64_t>()});
  } catch (const json::exception&) {
    TORCH_CHECK_VALUE(false, file.string(),
                      ": expected source, target, validation and tests with name and pairs; found others. "
                      "Make it again with: edgewise data translation");
  }
  read_references(sets.validation, folder);
  for (TestSet& set : sets.tests) read_references(set, folder);
  return sets;
}

TextReader translation_reader(const std::filesystem::path& folder) {
  read_sets(folder);  // says at once what the folder lacks
  return TextReader::load(text_reader_path(folder));
}

// Rows of ids in a rectangle of `padding`, with `first` before each (-1: nothing) and `last` behind (-1).
at::Tensor padded(const std::vector<std::span<const int32_t>>& rows, int64_t first, int64_t last,
                  int64_t padding) {
  int64_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, std::ssize(row));
  longest += (first >= 0) + (last >= 0);
  const at::Tensor result = at::full({std::ssize(rows), longest}, padding, at::kLong);
  for (size_t n = 0; n < rows.size(); ++n) {
    int64_t* to = result.mutable_data_ptr<int64_t>() + static_cast<int64_t>(n) * longest;
    if (first >= 0) *to++ = first;
    to = std::ranges::copy(rows[n], to).out;
    if (last >= 0) *to = last;
  }
  return result;
}

// [rows, longest + 1] bool: every row's ids and one mark.
at::Tensor mask_of(const std::vector<std::span<const int32_t>>& rows) {
  const at::Tensor lengths = at::empty({std::ssize(rows), 1}, at::kLong);
  int64_t longest = 0;
  for (size_t n = 0; n < rows.size(); ++n) {
    lengths.mutable_data_ptr<int64_t>()[n] = std::ssize(rows[n]) + 1;
    longest = std::max(longest, std::ssize(rows[n]) + 1);
  }
  return at::arange(longest, at::kLong).unsqueeze(0) < lengths;
}

template <typename Value>
void shuffle_all(std::vector<Value>& values, kernels::RowStream& stream) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[uniform_below(stream, i)]);
}

}  // namespace

void save_translation(const std::filesystem::path& folder, const TokenExamples& examples,
                      const TextReader& reader, const TranslationSets& sets) {
  save_token_examples(folder, examples, reader);
  std::error_code failure;
  std::filesystem::create_directories(folder / "references", failure);
  TORCH_CHECK_VALUE(!failure, "data translation: cannot make the folder ", (folder / "references").string(),
                    ": ", failure.message());
  nlohmann::ordered_json data = {{"format", kTranslationFormat},
                                 {"source", sets.source},
                                 {"target", sets.target},
                                 {"validation", sets.validation.pairs},
                                 {"tests", nlohmann::ordered_json::array()}};
  const auto write = [&](const TestSet& set) {
    std::string text;
    for (const std::string& line : set.references) text += line + "\n";
    io::write_file_atomically(references_path(folder, set.name), text);
  };
  write(sets.validation);
  for (const TestSet& set : sets.tests) {
    write(set);
    data["tests"].push_back({{"name", set.name}, {"pairs", set.pairs}});
  }
  io::write_file_atomically(folder / kTranslationFile, data.dump(2) + "\n");
}

TranslationPairs::TranslationPairs(const std::filesystem::path& folder)
    : TranslationPairs(translation_reader(folder),
                       load_token_examples(folder, TextReader::load(text_reader_path(folder))),
                       read_sets(folder)) {}

TranslationPairs::TranslationPairs(TextReader reader)
    : TranslationPairs(std::move(reader), TokenExamples(), TranslationSets()) {}

TranslationPairs::TranslationPairs(TextReader reader, TokenExamples examples, TranslationSets sets)
    : reader_(std::move(reader)), examples_(std::move(examples)), sets_(std::move(sets)) {
  int64_t tests = 0;
  for (const TestSet& set : sets_.tests) tests += set.pairs;
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
    TORCH_CHECK_VALUE(examples_.part(split).size() % 2 == 0,
                      "translation: expected a translation for every "
                      "source in the ",
                      to_string(split), " split; one source has none");
    const int64_t wanted = split == Split::kTrain        ? size(split)
                           : split == Split::kValidation ? sets_.validation.pairs
                                                         : tests;
    TORCH_CHECK_VALUE(size(split) == wanted, "translation: expected ", wanted, " pairs in the ",
                      to_string(split), " split, as ", kTranslationFile, " says; found ", size(split),
                      ". Make it again with: edgewise data translation");
    for (const int32_t length : examples_.part(split).lengths)
      TORCH_CHECK_VALUE(length < max_length(), "translation: expected sentences of less than ", max_length(),
                        " tokens; found ", length);
  }
  find_begins();
}

void TranslationPairs::find_begins() {
  for (size_t split = 0; split < begins_.size(); ++split) {
    const std::vector<int32_t>& sizes = examples_.parts[split].lengths;
    begins_[split].resize(sizes.size() + 1, 0);
    for (size_t n = 0; n < sizes.size(); ++n) begins_[split][n + 1] = begins_[split][n] + sizes[n];
  }
}

std::span<const int32_t> TranslationPairs::tokens(Split split, int64_t example) const {
  const std::vector<int64_t>& begins = begins_[static_cast<size_t>(split)];
  const auto place = static_cast<size_t>(example);
  return {examples_.part(split).tokens.data() + begins[place],
          static_cast<size_t>(begins[place + 1] - begins[place])};
}

std::pair<int64_t, int64_t> TranslationPairs::lengths(Split split, int64_t index) const {
  const std::vector<int32_t>& all = examples_.part(split).lengths;
  return {all.at(static_cast<size_t>(2 * index)) + 1, all.at(static_cast<size_t>(2 * index + 1)) + 1};
}

int64_t TranslationPairs::length(Split split, int64_t index) const {
  const auto [source, target] = lengths(split, index);
  return std::max(source, target);
}

int64_t TranslationPairs::line(Split split, int64_t index) const {
  return examples_.part(split).lines.at(static_cast<size_t>(2 * index));
}

Batch TranslationPairs::batch(Split split, std::span<const int64_t> indices) const {
  TORCH_CHECK_VALUE(!indices.empty(), name(), ": expected at least one index in a batch; got none");
  std::vector<std::span<const int32_t>> sources, targets;
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size(split), name(), ": expected an index from 0 to ",
                      size(split) - 1, " of split ", to_string(split), "; got ", index);
    sources.push_back(tokens(split, 2 * index));
    targets.push_back(tokens(split, 2 * index + 1));
  }
  Batch batch;
  batch.towers.push_back(source_tower(sources, reader_));
  batch.towers.push_back(
      {.tokens = padded(targets, reader_.stop(), -1, reader_.padding()), .mask = mask_of(targets)});
  batch.labels = padded(targets, -1, reader_.stop(), -1);
  return batch;
}

Tower source_tower(const std::vector<std::span<const int32_t>>& rows, const TextReader& reader) {
  return {.tokens = padded(rows, -1, reader.stop(), reader.padding()), .mask = mask_of(rows)};
}

std::vector<TestSet> TranslationPairs::sets(Split split) const {
  if (split == Split::kTrain) return {};
  return split == Split::kTest ? sets_.tests : std::vector<TestSet>{sets_.validation};
}

BleuOptions TranslationPairs::bleu() const {
  const std::string& metric = reader_.options().metric;
  TORCH_CHECK_VALUE(metric == "bleu-none" || metric == "bleu-13a",
                    "translation: expected the metric bleu-none or bleu-13a; found '", metric, "'");
  return {.tokens = metric == "bleu-none" ? BleuTokens::kNone : BleuTokens::k13a};
}

std::string TranslationPairs::summary() const {
  const TokenExamples::Part& train = examples_.part(Split::kTrain);
  return examples_.source + ", " + sets_.source + " to " + sets_.target + ", " +
         std::to_string(train.tokens.size()) + " tokens (" + std::string(reader_.tokenizer().kind()) +
         " of " + std::to_string(vocabulary()) + " ids)";
}

TokenBatchOrder::TokenBatchOrder(const TranslationPairs& data, int64_t tokens, uint64_t seed) : seed_(seed) {
  const int64_t size = data.size(Split::kTrain);
  TORCH_CHECK_VALUE(size > 0, "translation: expected pairs to train on; found none");
  for (int64_t index = 0; index < size; ++index) {
    TORCH_CHECK_VALUE(data.length(Split::kTrain, index) <= tokens,
                      "translation: expected train.batch_tokens of at least ",
                      data.length(Split::kTrain, index), ", which the pair of line ",
                      data.line(Split::kTrain, index), " takes; got ", tokens);
    lengths_.emplace_back(data.target_length(Split::kTrain, index), data.source_length(Split::kTrain, index));
  }
  sorted_.resize(static_cast<size_t>(size));
  std::iota(sorted_.begin(), sorted_.end(), int64_t{0});
  const auto by_length = [&](int64_t index) { return lengths_[static_cast<size_t>(index)]; };
  std::ranges::stable_sort(sorted_, {}, by_length);
  int64_t longest = 0, first = 0;
  for (int64_t place = 0; place < size; ++place) {
    const auto [target, source] = by_length(sorted_[static_cast<size_t>(place)]);
    const int64_t next = std::max({longest, target, source});
    if (next * (place + 1 - first) > tokens) {
      ends_.push_back(place);
      first = place;
      longest = std::max(target, source);
    } else {
      longest = next;
    }
  }
  ends_.push_back(size);
}

void TokenBatchOrder::shuffle(int64_t pass) {
  kernels::RowStream stream(
      kernels::stream_key(seed_, static_cast<uint64_t>(pass), kBatchLayer, 0, 0, kernels::Purpose::kShuffle),
      0);
  pairs_ = sorted_;
  const auto by_length = [&](int64_t index) { return lengths_[static_cast<size_t>(index)]; };
  shuffle_all(pairs_, stream);
  std::ranges::stable_sort(pairs_, {}, by_length);
  batches_.resize(ends_.size());
  std::iota(batches_.begin(), batches_.end(), int64_t{0});
  shuffle_all(batches_, stream);
  pass_ = pass;
}

std::vector<int64_t> TokenBatchOrder::indices(int64_t step) {
  TORCH_CHECK_VALUE(step >= 0, "TokenBatchOrder: expected a step of at least 0; got ", step);
  if (step / batches() != pass_) shuffle(step / batches());
  const auto batch = static_cast<size_t>(batches_[static_cast<size_t>(step % batches())]);
  const int64_t first = batch == 0 ? 0 : ends_[batch - 1];
  return {pairs_.begin() + first, pairs_.begin() + ends_[batch]};
}

}  // namespace edgewise::data
