// The fused rooted walk of SacEdges as a differentiable op (CPU): kernels/cpu/walk/walk_level.cpp behind
// autograd.
#pragma once

#include "ops/walk/walk_call.h"

namespace edgewise::ops {

struct RootedWalkActions {
  at::Tensor destination;        // [B, G, L, T] int64
  at::Tensor taken, chosen;      // [B, G, L, T] bool: an edge was made; by choice
  at::Tensor log_prob, entropy;  // [B, G, L, T], differentiable; 0 where nothing was chosen
  at::Tensor states;             // [B, G, L, T, P], likewise; undefined unless rules.with_states
};

RootedWalkActions rooted_walk(const WalkTensors& tensors, const WalkRules& rules);

}  // namespace edgewise::ops
