// Which tiles a thread block of the tile kernels visits: all, or those that hold an edge.
#pragma once

#include "kernels/cuda/tiles/tile_params.h"

namespace edgewise::kernels::cuda {

// The numbers of the inner tiles below `inner` that any of `strips` outer tiles uses, ascending, and how many
// there are; every thread takes part.
__device__ inline int list_used_tiles(const UsedTiles& used, int64_t head, int outer, int strips,
                                      int outer_tiles, int inner, uint16_t* to) {
  __shared__ int count;
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x;
    const uint8_t* const flags = used.flags + head * used.head_stride;
    int before = 0;
    for (int first = 0; first < inner; first += 32) {
      bool any = false;
      for (int n = 0; n < strips; ++n)
        if (first + lane < inner && outer + n < outer_tiles)
          any |= flags[(outer + n) * used.outer_stride + (first + lane) * used.inner_stride] != 0;
      const unsigned votes = __ballot_sync(~0u, any);
      if (any) to[before + __popc(votes & ((1u << lane) - 1))] = static_cast<uint16_t>(first + lane);
      before += __popc(votes);
    }
    if (lane == 0) count = before;
  }
  __syncthreads();
  return count;
}

}  // namespace edgewise::kernels::cuda
