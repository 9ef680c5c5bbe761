// EdgeEffect: the backward pass of attention tells every edge what it did to the loss.
//
// A number is attached to each edge that does not change the output; its gradient is the edge's effect, to
// first order in the loss. With the log-probability of the action that made the edge as that number, this is
// a policy gradient with one advantage per action instead of one per item (docs/math.md, "SAC").
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/functional.h>

namespace edgewise {

// With weights a, u = g . v_j, ubar = g . o_i and g = dL/do_i:
//   kLogit        a (u - ubar)            the gradient of the edge's logit: straight-through
//   kLeaveOneOut  a / (1 - a) (u - ubar)  the loss with the edge minus the loss without it
enum class EffectRule { kLogit, kLeaveOneOut };

struct EdgeEffect {
  at::Tensor values;  // [E] in CSR order; receives the effects as its gradient
  EffectRule rule = EffectRule::kLeaveOneOut;
};

namespace functional {

// edge_attention; the effects go to effect.values.
at::Tensor edge_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const EdgeSet& edges, const EdgeEffect& effect,
                          const EdgeAttentionOptions& options = {});

}  // namespace functional
}  // namespace edgewise
