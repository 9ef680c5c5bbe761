// The fused walk of pairs of SacEdges as a differentiable op (CPU): kernels/cpu/pairs_walk_level.cpp behind
// autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/walk_params.h"
#include "ops/rooted_walk.h"

namespace edgewise::ops {

struct PairsWalkRules {
  at::Tensor first, last, excluded;                // [L] int64
  std::optional<at::Tensor> key_mask, query_mask;  // [B, S], [B, L] bool
  at::Tensor limits;                               // [B] int64
  int64_t steps = 0;                               // the most edges of an item
  bool duplicates = false;
  kernels::WalkChoice choice = kernels::WalkChoice::kSample;
  at::Tensor stream_keys;  // [B * G] int64; kSample
};

struct PairsWalkActions {
  at::Tensor source, destination;  // [B, G, T] int64
  at::Tensor taken, chosen;        // [B, G, T] bool
  at::Tensor log_prob, entropy;    // [B, G, T], differentiable
};

// start [G, P]: the first input.
PairsWalkActions pairs_walk(const RootedWalkTensors& tensors, const at::Tensor& start,
                            const PairsWalkRules& rules);

}  // namespace edgewise::ops
