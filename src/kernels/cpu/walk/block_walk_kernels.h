// The rooted walk in blocks on the CPU. A call works on a range of units, as in walk.h.
#pragma once

#include "kernels/block_walk_params.h"
#include "kernels/cpu/walk/walk.h"

namespace edgewise::kernels::cpu {

template <typename T>
struct BlockWalkKernels {
  // Units 0 .. B * G * walk_blocks(L).
  void (*forward)(const BlockWalkParams<T>& params, int64_t begin, int64_t end);
  // Units 0 .. B * G * chunks. What it adds to must be 0 before.
  void (*backward)(const BlockWalkGradParams<T>& params, int64_t begin, int64_t end);
};
// Those of the CPU level in use (levels.h); fp64 has the portable ones only.
template <typename T>
BlockWalkKernels<T> active_block_walk_kernels();

}  // namespace edgewise::kernels::cpu
