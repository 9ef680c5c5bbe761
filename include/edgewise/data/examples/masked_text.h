// MaskedText: a text in pieces of which some tokens are hidden, to be guessed from the others, as RoBERTa
// does.
//
// The tokens of a split, packed without padding: piece i is <s>, the next length - 2 tokens, </s> (or length
// tokens, where the tokeniser has no such marks). Every token but the marks is chosen with probability
// mask_rate, on its own; of those chosen eight tenths are read as the mask, one tenth as a token drawn from
// the whole vocabulary, one tenth as they are. Training chooses anew in every pass: index p * size + i is
// piece i in pass p. Validation and test are always hidden alike.
//
// A batch has labels [B, M], the hidden tokens of each piece in order, -1 behind the last, and
// more["places"] [B, M], where they stand; M is the most of any piece, rounded up to a multiple of 16.
#pragma once

#include <edgewise/data/examples/token_examples.h>

namespace edgewise::data {

struct MaskedTextOptions {
  int64_t length = 512;  // tokens of a piece
  double mask_rate = 0.15;
};

class MaskedText : public Dataset {
 public:
  static constexpr const char* kPlaces = "places";  // of Batch::more

  MaskedText(const std::filesystem::path& folder, const MaskedTextOptions& options);
  MaskedText(TextReader reader, TokenExamples examples, const MaskedTextOptions& options);

  std::string name() const override { return "masked_text"; }
  int64_t size(Split split) const override;
  int64_t vocabulary() const override { return reader_.vocabulary(); }
  int64_t classes() const override { return vocabulary(); }
  int64_t max_length() const override { return options_.length; }
  Batch batch(Split split, std::span<const int64_t> indices) const override;
  // The loss of guessing by the frequencies of train alone, in nats.
  std::vector<Baseline> baselines(Split split) const override;
  std::string summary() const override;
  const TextReader* reader() const override { return &reader_; }

  // The tokens of a piece before any is hidden, marks included.
  std::vector<int32_t> piece(Split split, int64_t index) const;

 private:
  int64_t tokens_per_piece() const;  // without marks

  TextReader reader_;
  TokenExamples examples_;
  MaskedTextOptions options_;
};

}  // namespace edgewise::data
