// The fused rooted walk of SacEdges as a differentiable op (CPU): kernels/cpu/walk_level.cpp behind autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/walk_params.h"

namespace edgewise::ops {

// Differentiable inputs, all of one dtype (fp32 or fp64).
struct RootedWalkTensors {
  at::Tensor query_nodes;  // [B, G, L, P]
  at::Tensor key_nodes;    // [B, G, S, P]
  at::Tensor weight_ih;    // [G, P, 4P]
  at::Tensor weight_hh;    // [G, P, 4P]
  at::Tensor bias;         // [G, 4P]
  at::Tensor distance;     // [G, L + S - 1], by j - i + L - 1; undefined = nothing is added
};

// What may be chosen, and how; kernels/walk_params.h.
struct RootedWalkRules {
  at::Tensor first, last, excluded;    // [L] int64
  std::optional<at::Tensor> key_mask;  // [B, S] bool
  at::Tensor limits;                   // [B, L] int64
  int64_t steps = 0;                   // the largest limit
  bool duplicates = false;
  kernels::WalkChoice choice = kernels::WalkChoice::kSample;
  at::Tensor stream_keys;  // [B * G] int64; kSample
  bool learns = true;      // whether log-probabilities and entropies are wanted; block_walk only
};

struct RootedWalkActions {
  at::Tensor destination;        // [B, G, L, T] int64
  at::Tensor taken, chosen;      // [B, G, L, T] bool: an edge was made; by choice
  at::Tensor log_prob, entropy;  // [B, G, L, T], differentiable; 0 where nothing was chosen
};

RootedWalkActions rooted_walk(const RootedWalkTensors& tensors, const RootedWalkRules& rules);

}  // namespace edgewise::ops
