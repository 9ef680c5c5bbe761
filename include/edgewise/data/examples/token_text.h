// TokenText: a text in the pieces of a tokeniser, as a data set for language models: what `edgewise data
// text` made (token_examples.h), or any data set of texts, one example after another.
//
// Example i of a split are its tokens i N .. i N + N - 1, its labels the tokens one further on.
#pragma once

#include <edgewise/data/examples/token_examples.h>

namespace edgewise::data {

class TokenText : public Dataset {
 public:
  TokenText(const std::filesystem::path& folder, int64_t context);
  TokenText(TextReader reader, TokenExamples examples, int64_t context);

  std::string name() const override { return "next_tokens"; }
  int64_t size(Split split) const override;
  int64_t vocabulary() const override { return reader_.vocabulary(); }
  int64_t classes() const override { return vocabulary(); }
  int64_t max_length() const override { return context_; }
  Batch batch(Split split, std::span<const int64_t> indices) const override;  // without masks
  // The loss of guessing by the frequencies of train alone, in nats.
  std::vector<Baseline> baselines(Split split) const override;
  std::string summary() const override;
  const TextReader* reader() const override { return &reader_; }

  // Of the split's text: what a loss per token is divided by for one per byte.
  double bytes_per_token(Split split) const;

 private:
  TextReader reader_;
  TokenExamples examples_;
  int64_t context_;
};

// The loss of guessing every token of a split by the frequencies of train, in nats a token. What train lacks
// counts once.
double frequency_loss(const TokenExamples& examples, Split split, int64_t vocabulary);

}  // namespace edgewise::data
