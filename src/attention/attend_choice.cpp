#include "attention/attend_choice.h"

#include <ATen/TensorOperators.h>

#include "ops/step_inputs.h"

namespace edgewise {

int64_t allowed_pairs(const EdgeShape& shape, const PairMasks& masks, bool is_causal) {
  if (!is_causal) return valid_pairs(shape, masks.key, masks.query);
  const int64_t before = shape.keys - shape.queries;  // keys of a cache
  const std::optional<at::Tensor>& mask = masks.key;
  if (!mask) return shape.batch * (shape.queries * before + shape.queries * (shape.queries + 1) / 2);
  const at::Tensor valid = mask->to(at::kLong);            // [B, N]
  return (valid * valid.cumsum(1)).sum().item<int64_t>();  // keys up to and including each valid query
}

AttentionOutput attend_choice(const at::Tensor& own_query, const at::Tensor& own_key, const at::Tensor& value,
                              const EdgeRequest& request, const EdgeChoice& choice,
                              const functional::EdgeAttentionOptions& options) {
  // What the choice offers stands for what it was asked about.
  const bool offers_query = choice.query.defined() && own_query.is_same(request.query),
             offers_key = choice.key.defined() && own_key.is_same(request.key);
  const at::Tensor &query = offers_query ? choice.query : own_query, &key = offers_key ? choice.key : own_key;
  AttentionOutput result;
  result.penalty = choice.density_penalty;
  if (choice.learner) {
    auto learned = functional::edge_attention(query, key, value, choice.edges, *choice.learner, options);
    result.output = learned.output;
    if (!result.penalty.defined()) result.penalty = learned.sampled_density;
  } else {
    result.output = functional::edge_attention(query, key, value, choice.edges, options);
  }
  // A learner's own count leaves out the edges that a pattern added to its choice.
  const bool only_learned = choice.learner && !choice.learner->fixed;
  if (choice.density.defined() && only_learned) {
    result.density = choice.density;
  } else {
    // Beside cross-attention queries are keys, whose mask is theirs.
    const PairMasks masks{request.key_mask, request.is_cross ? request.cross_mask : request.key_mask};
    const auto pairs = [shape = request.shape(), masks, causal = request.is_causal] {
      return static_cast<double>(allowed_pairs(shape, masks, causal));
    };
    ops::HostNumber count{pairs()};
    if (masks.key || masks.query) count.again = pairs;
    result.density =
        ops::over(choice.edges.edges_per_head().sum(0).to(at::kDouble), ops::at_least_one(count));
  }
  result.edge_count = choice.edges.edges_per_head().sum();
  result.policy = choice.policy;
  return result;
}

}  // namespace edgewise
