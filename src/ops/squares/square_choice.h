// What a block model over groups asks of a CUDA device (docs/math.md, "Squares"): means of groups, squares
// and probes drawn from Q^ and T, and the gradients of both from the numbers of squares. Nothing waits for
// the device, so that a step can be recorded. Elsewhere the same is made of edges of groups and torch's
// operations.
#pragma once

#include <ATen/core/Tensor.h>
#include <edgewise/graph/square_lists.h>
#include <edgewise/ops/edge_learner.h>
#include <edgewise/ops/sample.h>

#include <optional>
#include <string>
#include <vector>

#include "ops/squares/square_attention.h"

namespace edgewise::ops {

struct ChosenSquares {
  graph::Squares squares;
  std::optional<graph::Squares> probes;
};

struct SquareSampling {
  EdgeShape shape;              // in tokens
  at::Tensor query_membership;  // Q^ [B, H, groups(L), C]
  at::Tensor key_side;          // T [B, H, groups(S), C]
  // Of groups: masks, law, exploration, random stream; query_offset is not read.
  SampleOptions options;
  // Query group I draws the numbers of row I + first_row and, if causal, chooses key groups up to that one.
  int64_t first_row = 0;
  std::vector<double> probe_rates = {};  // [B]; empty: no probes
};

// Why the kernels do not draw them; empty when they do.
std::string cuda_choice_refusal(const SquareSampling& sampling);
ChosenSquares cuda_choose_squares(const SquareSampling& sampling);

// Means over the valid tokens of each group, queries' and keys': [B, H, groups(N), D] each. Nothing where the
// kernels do not take the call. Differentiable.
struct GroupMeans {
  at::Tensor query, key;
  // The tokens themselves, [B, H, N, D]: what else reads them reads these, and then both gradients are added
  // up on the way back through the means. Undefined: nothing to be gained.
  at::Tensor query_tokens = {}, key_tokens = {};
};
std::optional<GroupMeans> cuda_group_means(const at::Tensor& query, const at::Tensor& key,
                                           const std::optional<at::Tensor>& query_mask,
                                           const std::optional<at::Tensor>& key_mask);

// Gradients of memberships from the numbers of squares and probes.
struct SquareMembershipGrads {
  at::Tensor query, key_side;
};
// Nothing where the kernels do not take them: the slope of the Poisson law. Clears the credit of fixed
// squares.
std::optional<SquareMembershipGrads> cuda_membership_grads(const EdgeLearner& learner, const EdgeSet& edges,
                                                           const SquareBackward& backward);

}  // namespace edgewise::ops
