// Parameters of the rooted walk in blocks: a query predicts a block of consecutive keys, then a key inside
// it.
//
// B items, G groups of heads that share their edges, L queries, S keys, T predictions a query, M keys a
// block, N = ceil(S / M) blocks. P is the predictor's width rounded up to kWalkLanes, zeros beyond the width;
// N' and M' are N and M rounded up likewise.
#pragma once

#include <cstdint>

#include "kernels/walk_params.h"

namespace edgewise::kernels {

inline constexpr int64_t kWalkLanes = 16;  // a multiple of the lanes of every CPU level
inline int64_t padded_lanes(int64_t count) {
  return (count + kWalkLanes - 1) / kWalkLanes * kWalkLanes;
}

// A query with no more candidates than its limit takes them all, with log-probability 0. width: P.
template <typename T>
struct BlockWalkParams : WalkParams {
  int64_t block = 0, blocks = 0;         // M, N
  const T* query_gates = nullptr;        // [B, G, L, 4P]: w_i W_ih + b
  const T* key_gates = nullptr;          // [B, G, S, 4P]
  const T* key_nodes = nullptr;          // [B, G, S, P]
  const T* transposed_keys = nullptr;    // [B, G, N, P, M'], zeros beyond S and M
  const T* means = nullptr;              // [B, G, N, P]: of the keys of a block that key_mask allows
  const T* transposed_means = nullptr;   // [B, G, P, N']
  const T* weight_hh = nullptr;          // [G, P, 4P]
  const T* transposed_weight = nullptr;  // [G, 4P, P]; backward only
  const T* distance = nullptr;           // [G, L + S - 1], at j - i + L - 1; null = nothing is added
  const T* block_distance = nullptr;     // [G, D]: of block b for query i, at block_start[i] + b; null alike
  int64_t block_distances = 0;           // D
  const int64_t* block_start = nullptr;  // [L]
  // Out, [B, G, L, T].
  T* log_prob = nullptr;  // null = nobody learns from this walk: nor entropy and levels
  T* entropy = nullptr;
  T* levels = nullptr;  // [B, G, L, T, 4]: normaliser and entropy of the block, then of the key
};

// The gradients of log_prob and entropy. Chunks of rows sum up apart, so that the result does not depend on
// the number of threads.
template <typename T>
struct BlockWalkGradParams {
  BlockWalkParams<T> walk;
  int64_t chunks = 1;                // C
  const T* grad_log_prob = nullptr;  // [B, G, L, T]
  const T* grad_entropy = nullptr;   // [B, G, L, T]
  T* grad_query_gates = nullptr;     // [B, G, L, 4P]
  T* grad_key_gates = nullptr;       // [B, G, C, S, 4P]
  T* grad_key_nodes = nullptr;       // [B, G, C, S, P]
  T* grad_means = nullptr;           // [B, G, C, N, P]
  T* grad_weight_hh = nullptr;       // [B, G, C, P, 4P]
  T* grad_distance = nullptr;        // [B, G, C, L + S - 1], null when distance is
  T* grad_block_distance = nullptr;  // [B, G, C, D], null when block_distance is
};

}  // namespace edgewise::kernels
