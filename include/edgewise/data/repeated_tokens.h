// RepeatedTokens: the synthetic task of the SBM-Transformer paper (section 5.1). Each sequence holds N
// tokens, uniform in 1..N; each token is labelled 1 when the same token occurs elsewhere in its sequence,
// else 0. Solving it needs every pair.
//
// Examples are made on the fly from (seed, split, index), so a split costs no memory and never changes.
#pragma once

#include <edgewise/data/dataset.h>

namespace edgewise::data {

struct RepeatedTokensOptions {
  int64_t length = 64;  // N
  int64_t train_size = 1'000'000;
  int64_t validation_size = 1024;
  int64_t test_size = 1024;
  uint64_t seed = 0;
};

class RepeatedTokens : public Dataset {
 public:
  explicit RepeatedTokens(const RepeatedTokensOptions& options = {});

  std::string name() const override { return "repeated_tokens"; }
  int64_t size(Split split) const override;
  int64_t vocabulary() const override { return options_.length + 1; }  // 0 stays padding
  int64_t classes() const override { return 2; }
  int64_t max_length() const override { return options_.length; }
  Batch batch(Split split, std::span<const int64_t> indices) const override;
  at::Tensor right_edges(const Batch& batch) const override;  // to the same token elsewhere
  std::vector<Baseline> baselines(Split) const override { return {{"majority class", majority_accuracy()}}; }

  // Expected accuracy of always answering with the more frequent label: 1 - (1 - 1/N)^(N-1), 63.2 % for large
  // N.
  double majority_accuracy() const;

 private:
  RepeatedTokensOptions options_;
};

}  // namespace edgewise::data
