// The fused walk of pairs of SacEdges as a differentiable op (CPU): kernels/cpu/walk/pairs_walk_level.cpp
// behind autograd.
#pragma once

#include "ops/walk/walk_call.h"

namespace edgewise::ops {

struct PairsWalkActions {
  at::Tensor source, destination;  // [B, G, T] int64
  at::Tensor taken, chosen;        // [B, G, T] bool
  at::Tensor log_prob, entropy;    // [B, G, T], differentiable
};

// start [G, P]: the first input.
PairsWalkActions pairs_walk(const WalkTensors& tensors, const at::Tensor& start, const WalkRules& rules);

}  // namespace edgewise::ops
