// functional::edge_attention over a set that was born as squares: autograd around
// ops/squares/square_attention.h.
#pragma once

#include <edgewise/ops/explain.h>
#include <edgewise/ops/functional.h>

#include "ops/squares/square_attention.h"
#include "ops/squares/square_choice.h"

namespace edgewise::ops {

// learner: null without one.
functional::LearnedAttention square_edge_attention(const at::Tensor& query, const at::Tensor& key,
                                                   const at::Tensor& value, const EdgeSet& edges,
                                                   const EdgeLearner* learner,
                                                   const functional::EdgeAttentionOptions& options);

AttentionChoice explain_square_attention(const at::Tensor& query, const at::Tensor& key,
                                         const at::Tensor& value, const EdgeSet& edges);

// From what the backward pass gave each square and each probe, and the gradient [H] of the sampled density
// (or undefined), to the gradients of query_membership and key_side.
SquareMembershipGrads square_membership_grads(const EdgeLearner& learner, const EdgeSet& edges,
                                              const SquareBackward& backward, const at::Tensor& density_grad);
// To the gradients of values and probe_values.
struct SquareValueGrads {
  at::Tensor values;        // [squares], in the order of square_groups()
  at::Tensor probe_values;  // [probes]; undefined without probes
};
SquareValueGrads square_value_grads(const EdgeLearner& learner, const EdgeSet& edges,
                                    const SquareBackward& backward);
void check_square_learner(const EdgeLearner& learner, const EdgeSet& edges);

}  // namespace edgewise::ops
