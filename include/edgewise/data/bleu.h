// BLEU of translations (Papineni et al. 2002), as sacrebleu 2.6 computes it:
//   BLEU = BP exp(mean over n = 1..4 of ln p_n),   BP = exp(1 - r / c) if c < r, else 1
// p_n: matched n-grams over n-grams of the hypotheses, both summed over the corpus, a match clipped to the
// most that one reference has; c and r: words of the hypotheses and of the references, of several the one
// closest in length, the shorter of two as close. Scores are in per cent.
//
// A score is a function of counts that add up over sentences; resampling adds the counts of drawn sentences.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::data {

enum class BleuTokens {
  k13a,            // mteval-v13a: what WMT's scores use
  kInternational,  // mteval-v14: punctuation and symbols of Unicode
  kNone,           // the text is tokenised already: divided at white space
};

// For orders of which no n-gram matches, k counting them: p_n = ...
enum class BleuSmoothing {
  kExp,    // 1 / (2^k total)
  kFloor,  // value / total, value 0.1 unless set
  kAddK,   // (matches + value) / (total + value) for every n > 1, value 1 unless set
  kNone,   // 0, and with it the score
};

struct BleuOptions {
  BleuTokens tokens = BleuTokens::k13a;
  BleuSmoothing smoothing = BleuSmoothing::kExp;
  std::optional<double> smoothing_value = std::nullopt;
  bool lower_case = false;
  // Only orders that the hypothesis is long enough for: sentences of fewer than four words.
  bool effective_order = false;
};

inline constexpr int kBleuOrder = 4;

struct BleuCounts {
  std::array<int64_t, kBleuOrder> matches{}, totals{};
  int64_t hypothesis_length = 0, reference_length = 0;

  BleuCounts& operator+=(const BleuCounts& other);
};

struct BleuScore {
  double score = 0;                             // 0..100
  std::array<double, kBleuOrder> precisions{};  // 0..100, smoothed
  double brevity_penalty = 1;
  int64_t hypothesis_length = 0, reference_length = 0;
};

// The text as it is compared: tokens with one blank between them.
std::string bleu_tokens(std::string_view text, const BleuOptions& options = {});

// Of one sentence with one reference or more.
BleuCounts bleu_counts(std::string_view hypothesis, std::span<const std::string> references,
                       const BleuOptions& options = {});
BleuScore bleu_of_counts(const BleuCounts& counts, const BleuOptions& options = {});

// references[i] are those of hypotheses[i].
using BleuReferences = std::span<const std::vector<std::string>>;
std::vector<BleuCounts> corpus_counts(std::span<const std::string> hypotheses, BleuReferences references,
                                      const BleuOptions& options = {});
BleuScore corpus_bleu(std::span<const std::string> hypotheses, BleuReferences references,
                      const BleuOptions& options = {});
// With effective order, whatever the options say.
BleuScore sentence_bleu(std::string_view hypothesis, std::span<const std::string> references,
                        BleuOptions options = {});

struct BootstrapOptions {
  int64_t draws = 1000;  // corpora of as many sentences, drawn with replacement
  uint64_t seed = 0;     // the same seed draws the same sentences, whatever the counts
};

struct BleuInterval {
  double mean = 0, low = 0, high = 0;  // of the draws; low and high leave a fortieth outside on either side
};
BleuInterval bootstrap_bleu(std::span<const BleuCounts> sentences, const BleuOptions& options = {},
                            const BootstrapOptions& bootstrap = {});

// Two systems on the same sentences, over the same draws.
struct PairedBleu {
  BleuInterval difference;  // first - second
  double wins = 0;          // share of the draws in which the first is better
  double p_value =
      1;  // sacrebleu's: how often |difference| exceeds its mean by as much as it is on the corpus itself
};
PairedBleu paired_bootstrap_bleu(std::span<const BleuCounts> first, std::span<const BleuCounts> second,
                                 const BleuOptions& options = {}, const BootstrapOptions& bootstrap = {});

}  // namespace edgewise::data
