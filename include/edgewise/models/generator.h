// Generator: one token after another from a language model.
//
// With a key-value cache a new token costs one row per layer. A window of `context` tokens that is full
// begins again with its last half, unless the model forgets by itself (LanguageModel::forgets). Where the
// edges of a row depend on the whole sequence (LanguageModel::cache_refusal), every token costs a pass over
// the window.
#pragma once

#include <edgewise/models/language_model.h>

#include <cstdint>
#include <vector>

namespace edgewise {

struct SamplingOptions {
  bool greedy = false;     // the likeliest token
  double temperature = 1;  // logits are divided by it
  int64_t top_k = 0;       // among the k likeliest; 0 = all
  double top_p = 1;        // among the likeliest that together have this probability
};

// `uniform` in (0, 1) decides. logits [vocabulary] on any device.
int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, double uniform);

// kWhereExact: unless the model's cache_refusal() says why not.
enum class GeneratorCache { kWhereExact, kNever };

class Generator {
 public:
  // `random` are the random numbers of evaluation, for edges; the tokens are drawn from `seed`.
  Generator(LanguageModel model, SamplingOptions options, uint64_t seed, RandomStream random,
            GeneratorCache cache = GeneratorCache::kWhereExact);

  // Reads tokens; at least one before the first next().
  void read(const std::vector<int64_t>& tokens);
  int64_t next();
  // Of the token after all that was read or made: [vocabulary].
  const at::Tensor& logits() const { return logits_; }

 private:
  void read_window(const std::vector<int64_t>& tokens);
  at::Tensor as_batch(const std::vector<int64_t>& tokens) const;

  LanguageModel model_;
  SamplingOptions options_;
  uint64_t seed_;
  RandomStream random_;
  bool cached_;
  DecoderCache cache_;
  std::vector<int64_t> window_;  // the tokens that the next one can see
  at::Tensor logits_;
  int64_t made_ = 0;
};

}  // namespace edgewise
