// TextReader: what a model reads of a text or a pair of texts, and what its answers mean. A data set has one,
// and every run keeps a copy, so that a run answers new texts without the data it was trained on.
//
// Token ids are those of a tokeniser; ids that it lacks (padding, what stands between two texts, the mask)
// come behind its own. A folder `reader` holds reader.json and the folder `tokenizer`:
//   format      "edgewise.text_reader.1"
//   answer      "class", "number" or "none"
//   classes     their names, in the order of their numbers
//   mean, scale numbers are learned as (number - mean) / scale
//   max_length  tokens of an example; what is longer is cut
//   columns     where texts come from: text, pair and label (names, keys or numbers)
//   metric      what answers are judged by
#pragma once

#include <edgewise/data/tokenizer.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::data {

enum class AnswerKind { kClass, kNumber, kNone };
AnswerKind parse_answer_kind(std::string_view name);  // "class" | "number" | "none"
std::string_view to_string(AnswerKind kind);

struct TextReaderOptions {
  AnswerKind answer = AnswerKind::kClass;
  std::vector<std::string> classes = {};
  double mean = 0, scale = 1;
  int64_t max_length = 512;
  std::string text_column = "text", pair_column = {}, label_column = "label";  // pair: empty for single texts
  std::string metric = "accuracy";

  bool reads_pairs() const { return !pair_column.empty(); }
  bool operator==(const TextReaderOptions&) const = default;
};

class TextReader {
 public:
  TextReader(std::shared_ptr<const Tokenizer> tokenizer, TextReaderOptions options);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const TextReaderOptions& options() const { return options_; }
  int64_t vocabulary() const { return vocabulary_; }  // ids are below it
  int32_t padding() const { return padding_; }
  int32_t mask() const { return mask_; }
  // What ends a sentence of a translation: </s>, or an id of its own.
  int32_t stop() const { return separator_; }
  std::optional<int32_t> begin() const { return tokenizer_->special().begin; }
  std::optional<int32_t> end() const { return tokenizer_->special().end; }

  // Appends the ids of a text, <s> text </s>, or of a pair, <s> first </s></s> second </s>; where the
  // tokeniser has no such pieces, of the text alone or with one separator in between. The longer text of a
  // pair is cut first. Returns whether something was cut. Throws for a text without any token.
  bool read(std::string_view text, const std::optional<std::string_view>& pair,
            std::vector<int32_t>& ids) const;

  // The number of a class; throws, naming the classes, when there is none of that name.
  int64_t class_of(std::string_view name) const;

  // Two readers of the same id for the same piece of text.
  bool reads_like(const TextReader& other) const;

  void save(const std::filesystem::path& folder) const;  // FOLDER/reader.json and FOLDER/tokenizer
  static TextReader load(const std::filesystem::path& folder);
  static bool is_in(const std::filesystem::path& folder);

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  TextReaderOptions options_;
  int64_t vocabulary_ = 0;
  int32_t padding_ = 0, separator_ = 0, mask_ = 0;
};

}  // namespace edgewise::data
