// Bit tiles (kernels/bit_tiles.h) in the registers of a CUDA kernel.
#pragma once

#include "kernels/bit_tiles.h"

namespace edgewise::kernels::cuda {

// AND masks for the two packed bf16 pairs of block j: prmt in its sign-replicating mode (the intrinsic drops
// that bit).
__device__ inline void pair_masks(uint32_t word, int j, uint32_t& upper, uint32_t& lower) {
  const uint32_t shifted = word << j;
  asm("prmt.b32 %0, %1, 0, 0x9988;" : "=r"(upper) : "r"(shifted));
  asm("prmt.b32 %0, %1, 0, 0xBBAA;" : "=r"(lower) : "r"(shifted));
}

}  // namespace edgewise::kernels::cuda
