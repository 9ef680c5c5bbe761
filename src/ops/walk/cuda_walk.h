// The rooted walks of SacEdges on CUDA as differentiable ops: kernels/cuda/walk/ behind autograd. Walks of
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

// What may be chosen, and how. Query i chooses among the keys that the mask allows at most `window` from its
// place, query_offset + i.
struct CudaWalkRules {
  int64_t query_offset = 0;
  int64_t window = -1;  // -1 = any distance
  bool is_causal = false, no_self = false;
  std::optional<at::Tensor> key_mask;  // [B, S] bool
  at::Tensor limits;                   // [B, L] int64 edges of each query, undefined = steps
  int64_t steps = 0;                   // the most of them
  bool duplicates = false;
  kernels::WalkChoice choice = kernels::WalkChoice::kSample;
  RandomStream random;
  bool learns = true;         // whether log-probabilities and entropies are wanted
  bool with_actions = true;   // whether anything but the sorted keys is
  int64_t block = 0;          // keys a block; 0 = destinations among all keys
  at::Tensor block_distance;  // [G, D], differentiable: of block b for query i, at farthest - (query_offset +
                              // i) / block + b
  int64_t farthest = 0;
  bool rounded = false;  // in blocks: nodes and LSTM weights are bf16 numbers
};

struct CudaWalkActions {
  at::Tensor sorted;             // [B, G, L, T] int32 keys of each query in order, S where there is none
  at::Tensor order;              // [B, G, L, T] int64 the prediction that chose each
  at::Tensor destination;        // [B, G, L, T] int64
  at::Tensor taken, chosen;      // [B, G, L, T] bool: an edge was made; by choice
  at::Tensor log_prob, entropy;  // [B, G, L, T] differentiable; 0 where nothing was chosen
};

// Why the kernels do not take such a walk; empty when they do. bias [G, 4P]: the LSTM's.
std::string cuda_walk_refusal(const at::Tensor& bias, const EdgeShape& shape, int64_t block, int64_t steps);

CudaWalkActions cuda_rooted_walk(const WalkTensors& tensors, const CudaWalkRules& rules);

// A rooted walk in blocks of self-attention that nobody learns from, straight from the tokens: nodes, means,
// distances and the walk are two launches. With rules.rounded nodes and weights are rounded here.
struct TokenWalk {
  at::Tensor tokens;                // [B, L, E] fp32 or bf16
  at::Tensor node_weight;           // [G, E, P]
  at::Tensor node_bias;             // [G, P]
  at::Tensor weight_ih, weight_hh;  // [G, P, 4P]
  at::Tensor bias;                  // [G, 4P]
  at::Tensor distance;              // [G, buckets], undefined = nothing is added
  at::Tensor buckets;               // [2 L - 1] int64: of the distances from 1 - L on
  at::Tensor block_distance;        // [G, buckets]
  at::Tensor block_buckets;         // [D] int64: of the distances of blocks, as rules.block_distance
};
bool cuda_token_walk_takes(const TokenWalk& walk, int64_t block);
at::Tensor cuda_token_walk(const TokenWalk& walk, const CudaWalkRules& rules);  // CudaWalkActions::sorted

}  // namespace edgewise::ops
