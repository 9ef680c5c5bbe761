// The fused walks on the CPU. A call works on a range of units: blocks of kWalkRows rows of one item and
// group (forward), or chunks of rows (backward); the caller divides them among threads.
#pragma once

#include "kernels/walk_params.h"

namespace edgewise::kernels::cpu {

inline constexpr int64_t kWalkRows = 8;
inline int64_t walk_blocks(int64_t queries) {
  return (queries + kWalkRows - 1) / kWalkRows;
}

template <typename T>
struct WalkKernels {
  // Units 0 .. B * G * walk_blocks(L). transposed_keys: of transpose_nodes.
  void (*forward)(const RootedWalkParams<T>& params, const T* transposed_keys, int64_t begin, int64_t end);
  // Units 0 .. B * G * chunks. What it adds to must be 0 before.
  void (*backward)(const RootedWalkGradParams<T>& params, const T* transposed_keys, int64_t begin,
                   int64_t end);
};
// Those of the CPU level in use (levels.h); fp64 has the portable ones only.
template <typename T>
WalkKernels<T> active_walk_kernels();

template <typename T>
struct PairsWalkKernels {
  // Units 0 .. B * G: one chain each.
  void (*forward)(const PairsWalkParams<T>& params, const T* transposed_queries, const T* transposed_keys,
                  int64_t begin, int64_t end);
  void (*backward)(const PairsWalkGradParams<T>& params, const T* transposed_queries,
                   const T* transposed_keys, int64_t begin, int64_t end);
};
template <typename T>
PairsWalkKernels<T> active_pairs_walk_kernels();

// [B * G, S, P] -> [B * G, P, padded_keys(S)], zeros beyond S. Units 0 .. B * G.
template <typename T>
void transpose_nodes(const T* nodes, int64_t keys, int64_t width, T* out, int64_t begin, int64_t end) {
  const int64_t padded = padded_keys(keys);
  for (int64_t unit = begin; unit < end; ++unit) {
    for (int64_t p = 0; p < width; ++p) {
      T* row = out + (unit * width + p) * padded;
      for (int64_t j = 0; j < keys; ++j) row[j] = nodes[(unit * keys + j) * width + p];
      for (int64_t j = keys; j < padded; ++j) row[j] = 0;
    }
  }
}

}  // namespace edgewise::kernels::cpu
