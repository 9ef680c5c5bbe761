// Beam search: the likeliest translations of a model, by the rules of fairseq.
//
// Every step looks at the 2 beam likeliest continuations of a sentence's hypotheses. One that ends the
// sentence is a translation if it is among the first `beam` of them; the first `beam` others go on. A
// sentence is done with `beam` translations, or at its longest, where the end is forced. Nothing is empty:
// the end cannot come first.
//
//   score = log p / length^penalty,   or (GNMT, tensor2tensor)   log p / ((5 + length) / 6)^penalty
//
// where the length counts the end mark.
#pragma once

#include <edgewise/models/encoder_decoder.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace edgewise {

enum class LengthPenalty { kLength, kGnmt };
LengthPenalty parse_length_penalty(std::string_view name);  // "length" | "gnmt"

double length_penalty_score(double log_probability, int64_t length, LengthPenalty kind, double penalty);

struct BeamSearchOptions {
  int64_t beam = 5;
  LengthPenalty kind = LengthPenalty::kLength;
  double penalty = 1;
  // A translation has at most length_factor * (tokens of its source, end included) + length_extra tokens, its
  // own end excluded, and no more than the model's max_length allows.
  double length_factor = 0;
  int64_t length_extra = 200;
  int64_t end = 2;                   // id that ends a translation and stands before its first token
  std::vector<int64_t> never = {1};  // ids that no translation has, such as padding
  bool cached = true;                // where the model's cache_refusal() is empty
  std::function<bool()> stop = {};   // asked before every step; true ends the search with what there is
};

struct Hypothesis {
  std::vector<int32_t> tokens;  // without the end
  double score = 0, log_probability = 0;
};

// Of every sentence the translations found, the best first: at most `beam`. `source` on the model's device,
// which is in evaluation mode; sentence n of the batch draws its edges as item random.first_item + n, alike
// for all of its hypotheses and whatever else is in the batch.
std::vector<std::vector<Hypothesis>> beam_search(EncoderDecoderImpl& model, const Tower& source,
                                                 const BeamSearchOptions& options,
                                                 const RandomStream& random = {});

}  // namespace edgewise
