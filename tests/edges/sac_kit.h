// Small predictors and requests for the tests of SacEdges.
#pragma once

#include <edgewise/edges/sac_edges.h>

#include <torch/torch.h>

#include "edges/sac/sac_walk.h"
#include "kit/random_inputs.h"

namespace edgewise::kit {

// Self-attention of `tokens` tokens, heads of width 4; token states and heads are independent numbers.
inline EdgeRequest sac_request(int64_t batch, int64_t heads, int64_t tokens,
                               at::ScalarType dtype = at::kDouble) {
  EdgeRequest result;
  result.query = randn({batch, heads, tokens, 4}, 1, dtype);
  result.key = randn({batch, heads, tokens, 4}, 2, dtype);
  result.tokens = randn({batch, tokens, heads * 4}, 3, dtype);
  return result;
}

// A predictor with large random weights, so that its distributions are far from uniform.
inline SacEdges sac_predictor(SacEdgesOptions options, uint64_t seed = 7, double scale = 2) {
  torch::manual_seed(seed);
  // Of an edge that may be chosen twice the walk has no probability.
  if (options.duplicates && options.estimator == SacEstimator::kCounterfactual)
    options.estimator = SacEstimator::kPaired;
  SacEdges result(std::move(options));
  const torch::NoGradGuard guard;
  for (at::Tensor& parameter : result->parameters()) parameter.normal_(0, 0.5 * scale);
  result->to(at::kDouble);
  return result;
}

inline SacEdgesOptions sac_options(int64_t heads, SacWalk walk, int64_t alpha) {
  SacEdgesOptions result(heads, heads * 4);
  result.node_dim = 5;
  result.walk = walk;
  result.alpha = alpha;
  result.distance_buckets = 6;
  result.max_distance = 8;
  if (walk == SacWalk::kPairs) result.estimator = SacEstimator::kPaired;
  return result;
}

// A walk along given actions.
inline sac::WalkResult given_walk(const SacEdges& source, const sac::WalkInputs& inputs,
                                  const sac::WalkResult& actions) {
  const bool rooted = source->options.walk == SacWalk::kRooted;
  const sac::Chooser given = sac::given_chooser(actions, source->options.walk);
  return rooted ? sac::rooted_walk(*source, inputs, given) : sac::pairs_walk(*source, inputs, given);
}

inline bool same_edges(const EdgeSet& a, const EdgeSet& b) {
  return a.shape() == b.shape() && at::equal(a.row_offsets(), b.row_offsets()) &&
         at::equal(a.col_indices(), b.col_indices());
}

}  // namespace edgewise::kit
