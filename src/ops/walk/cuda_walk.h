// The rooted walk of SacEdges on CUDA as a differentiable op: kernels/cuda/walk/ behind autograd. Walks of
// pairs run in plain ATen there. Without CUDA in the build, a stub whose refusal says so (no_cuda.cpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/random_stream.h>

#include "kernels/walk_params.h"
#include "ops/walk/walk_call.h"

namespace edgewise::ops {

// What may be chosen, and how. Query i chooses among the keys that the mask allows at most `window` and more
// than `gap` from its place, query_offset + i.
struct CudaWalkRules {
  int64_t query_offset = 0;
  int64_t window = -1;  // -1 = any distance
  int64_t gap = -1;     // -1 = its own key, too
  bool is_causal = false;
  std::optional<at::Tensor> key_mask;  // [B, S] bool
  at::Tensor limits;                   // [B, L] int64 edges of each query, undefined = steps
  int64_t steps = 0;                   // the most of them
  bool duplicates = false;
  kernels::WalkChoice choice = kernels::WalkChoice::kSample;
  RandomStream random;
  bool learns = true;        // whether log-probabilities and entropies are wanted
  bool with_actions = true;  // whether anything but the sorted keys is
};

struct CudaWalkActions {
  at::Tensor sorted;             // [B, G, L, T] int32 keys of each query in order, S where there is none
  at::Tensor order;              // [B, G, L, T] int64 the prediction that chose each
  at::Tensor destination;        // [B, G, L, T] int64
  at::Tensor taken, chosen;      // [B, G, L, T] bool: an edge was made; by choice
  at::Tensor log_prob, entropy;  // [B, G, L, T] differentiable; 0 where nothing was chosen
  at::Tensor states;             // [B, G, L, T, P] likewise; undefined unless rules.learns
};

// Why the kernel does not take such a walk; empty when it does. bias [G, 4P]: the LSTM's.
std::string cuda_walk_refusal(const at::Tensor& bias, const EdgeShape& shape, int64_t steps);

CudaWalkActions cuda_rooted_walk(const WalkTensors& tensors, const CudaWalkRules& rules);

}  // namespace edgewise::ops
