// One row of attention over bit tiles, far from any tensor core: for the rare rows whose sums leave the
// range.
#pragma once

#include <cuda_bf16.h>

#include "kernels/bit_tiles.h"

namespace edgewise::kernels::cuda {

// The plain way for one row, by one warp: two visits of its edges, maximum first. `dropped` says of column
// `column` of tile `tile` whether dropout removes it.
template <typename T>
struct RowInputs {
  const T *query, *key, *value;      // of the row; of its head
  int64_t key_stride, value_stride;  // from token to token
  float scale, keep_scale;
  const uint32_t* tiles;  // the strip of tiles that holds the row
  int row_in_tile, column_tiles;

  __device__ bool bit(const uint32_t* plane, int tile, int column) const {
    return (plane[tile * kTileWords + tile_word(row_in_tile, column)] >> tile_bit(row_in_tile, column)) & 1;
  }
};
template <int D, typename T, typename Dropped>
__device__ void attend_row(const RowInputs<T>& p, const Dropped& dropped, T* out, float* lse) {
  const int lane = threadIdx.x % 32;
  const auto edge = [&](int tile, int column) { return p.bit(p.tiles, tile, column); };
  const auto logit = [&](int64_t j) {
    float sum = 0;
    for (int d = 0; d < D; ++d)
      sum += static_cast<float>(p.query[d]) * static_cast<float>(p.key[j * p.key_stride + d]);
    return sum * p.scale;
  };
  float top = -INFINITY, total = 0;
  for (int tile = 0; tile < p.column_tiles; ++tile)
    for (int column = lane; column < 64; column += 32)
      if (edge(tile, column)) {
        const float s = logit(tile * 64 + column), larger = fmaxf(top, s);
        total = total * expf(top - larger) + expf(s - larger);
        top = larger;
      }
  float highest = top;
  for (int step = 16; step; step /= 2) highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, step));
  total = top == -INFINITY ? 0 : total * expf(top - highest);
  for (int step = 16; step; step /= 2) total += __shfl_xor_sync(~0u, total, step);
  constexpr int kPerLane = (D + 31) / 32;
  float sum[kPerLane] = {};
  for (int tile = 0; tile < p.column_tiles; ++tile)
    for (int half = 0; half < 64; half += 32) {
      const bool mine = edge(tile, half + lane);
      const bool kept = mine && !dropped(tile, half + lane);
      const float weight = kept ? expf(logit(tile * 64 + half + lane) - highest) : 0;
      for (unsigned rest = __ballot_sync(~0u, kept); rest; rest &= rest - 1) {
        const int from = __ffs(rest) - 1;
        const float a = __shfl_sync(~0u, weight, from);
        const T* v = p.value + static_cast<int64_t>(tile * 64 + half + from) * p.value_stride;
        for (int n = 0; n < kPerLane; ++n)
          if (n * 32 + lane < D) sum[n] += a * static_cast<float>(v[n * 32 + lane]);
      }
    }
  for (int n = 0; n < kPerLane; ++n)
    if (n * 32 + lane < D) out[n * 32 + lane] = static_cast<T>(sum[n] / total * p.keep_scale);
  if (lane == 0) *lse = highest + logf(total);
}

}  // namespace edgewise::kernels::cuda
