// TranslationPairs: sentences with their translations, as token ids; and the folder that holds them:
// examples.safetensors and `reader` (token_examples.h), where example 2 i is source i and example 2 i + 1 its
// translation, both without marks, and beside them
//   translation.json       format "edgewise.translation.1", the names of both languages, and the test sets,
//   by
//                          name and number of pairs, in the order in which the test split has them
//   references/NAME.txt    the translations of a test set as they were given, one a line: what BLEU compares
//                          with; of validation, validation.txt
// The reader's metric says how BLEU divides text into words: "bleu-none" where words stand between blanks,
// else "bleu-13a".
//
// A batch has two towers: the source with its end mark, and what a decoder reads of the translation, the end
// mark first; labels [B, T] are the tokens after each, the end mark last, -1 at padding. Both are padded
// behind their ends, to the longest of the batch.
#pragma once

#include <edgewise/data/batches.h>
#include <edgewise/data/bleu.h>
#include <edgewise/data/examples/token_examples.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace edgewise::data {

struct TestSet {
  std::string name;
  int64_t pairs = 0;
  std::vector<std::string> references = {};
};

struct TranslationSets {
  std::string source = "source", target = "target";  // names of the languages
  TestSet validation{.name = "validation"};
  std::vector<TestSet> tests;
};

// Writes the whole folder; translation.json appears last, when complete.
void save_translation(const std::filesystem::path& folder, const TokenExamples& examples,
                      const TextReader& reader, const TranslationSets& sets);

class TranslationPairs : public Dataset {
 public:
  explicit TranslationPairs(const std::filesystem::path& folder);
  TranslationPairs(TextReader reader, TokenExamples examples, TranslationSets sets);
  // Without examples: what a model is made from that is to translate new texts.
  explicit TranslationPairs(TextReader reader);

  std::string name() const override { return "translation"; }
  int64_t size(Split split) const override { return examples_.part(split).size() / 2; }
  int64_t vocabulary() const override { return reader_.vocabulary(); }
  int64_t classes() const override { return vocabulary(); }
  int64_t max_length() const override { return reader_.options().max_length; }
  int64_t length(Split split, int64_t index) const override;  // of the longer of both, with its mark
  Batch batch(Split split, std::span<const int64_t> indices) const override;
  std::string summary() const override;
  const TextReader* reader() const override { return &reader_; }
  int64_t line(Split split, int64_t index) const override;

  // With their marks.
  int64_t source_length(Split split, int64_t index) const { return lengths(split, index).first; }
  int64_t target_length(Split split, int64_t index) const { return lengths(split, index).second; }
  // Of validation, or of the tests in their order.
  std::vector<TestSet> sets(Split split) const;
  BleuOptions bleu() const;

 private:
  void find_begins();
  std::pair<int64_t, int64_t> lengths(Split split, int64_t index) const;
  std::span<const int32_t> tokens(Split split, int64_t example) const;

  TextReader reader_;
  TokenExamples examples_;
  TranslationSets sets_;
  std::array<std::vector<int64_t>, 3> begins_;  // of the examples among the tokens
};

// Rows of ids, each with the end mark behind it, as a model reads sources.
Tower source_tower(const std::vector<std::span<const int32_t>>& rows, const TextReader& reader);

// Batches of training by tokens: pairs of similar length together, as many as keep the padded tokens of the
// longer side at `tokens` or below, in a new order in every pass. A step's indices depend on (seed, step)
// alone.
class TokenBatchOrder : public Order {
 public:
  TokenBatchOrder(const TranslationPairs& data, int64_t tokens, uint64_t seed);
  std::vector<int64_t> indices(int64_t step) override;
  int64_t batches() const { return static_cast<int64_t>(ends_.size()); }  // of a pass

 private:
  void shuffle(int64_t pass);

  uint64_t seed_;
  // The pairs by length, and where each batch ends; those of one length change places from pass to pass.
  std::vector<int64_t> sorted_, ends_;
  std::vector<std::pair<int64_t, int64_t>> lengths_;  // of the pairs: target, source
  int64_t pass_ = -1;
  std::vector<int64_t> pairs_, batches_;  // of the pass
};

}  // namespace edgewise::data
