// LabelledText: TokenExamples with an answer each as a data set: a class, or a number.
//
// A batch is padded to its longest text, rounded up to a multiple of 16. A pair of texts is one sequence.
// Numbers are learned as (number - mean) / scale.
#pragma once

#include <edgewise/data/examples/token_examples.h>

#include <vector>

namespace edgewise::data {

class LabelledText : public Dataset {
 public:
  explicit LabelledText(const std::filesystem::path& folder);
  // Without examples: what a model is made from that is to answer new texts.
  explicit LabelledText(TextReader reader, TokenExamples examples = {});

  std::string name() const override { return name_; }
  int64_t size(Split split) const override { return examples_.part(split).size(); }
  int64_t vocabulary() const override { return reader_.vocabulary(); }
  int64_t classes() const override;  // 1 for numbers
  int64_t max_length() const override { return reader_.options().max_length; }
  int64_t length(Split split, int64_t index) const override;
  Batch batch(Split split, std::span<const int64_t> indices) const override;
  std::string summary() const override;
  const TextReader* reader() const override { return &reader_; }
  int64_t line(Split split, int64_t index) const override;

  bool answers_numbers() const { return reader_.options().answer == AnswerKind::kNumber; }
  // The answers of a split, in its order: numbers of classes, or numbers as they were given.
  const std::vector<double>& answers(Split split) const { return examples_.part(split).answers; }

 private:
  void find_begins();

  std::string name_ = "labelled_text";
  TextReader reader_;
  TokenExamples examples_;
  std::array<std::vector<int64_t>, 3> begins_;  // of the examples among the tokens
};

// Rows of ids as a batch, without labels.
Batch text_batch(const std::vector<std::span<const int32_t>>& rows, const TextReader& reader);

}  // namespace edgewise::data
