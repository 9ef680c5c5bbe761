// Which pairs of a bit tile may be edges at all, in the order of its words.
#pragma once

#include "kernels/bit_tiles.h"
#include "kernels/cuda/tiles/tile_params.h"

namespace edgewise::kernels::cuda {
namespace {

// Bits of the valid columns of a tile, in the order of a lane's word; the same for every row. [B,
// column_tiles, 4].
__global__ void mark_columns(TileShape shape, const uint8_t* key_mask, uint32_t* column_words) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t tiles = shape.column_tiles();
  if (index >= shape.batch * tiles * 4) return;
  const int t = index % 4, tile = index / 4 % tiles, item = index / 4 / tiles;
  uint32_t word = 0;
  for (int j = 0; j < 8; ++j)
    for (int e = 0; e < 2; ++e) {
      const int column = tile * 64 + 8 * j + 2 * t + e;
      if (column < shape.keys && (!key_mask || key_mask[item * shape.keys + column]))
        word |= 1u << (7 + 8 * e - j) | 1u << (7 + 8 * (e + 2) - j);
    }
  column_words[index] = word;
}
void launch_mark_columns(const TileShape& shape, const uint8_t* key_mask, uint32_t* column_words,
                         cudaStream_t stream) {
  const int64_t marks = shape.batch * shape.column_tiles() * 4;
  mark_columns<<<static_cast<unsigned>((marks + 127) / 128), 128, 0, stream>>>(shape, key_mask, column_words);
}

// The bits of a lane's two rows, `row` and row + 8, that are valid queries.
__device__ uint32_t valid_rows(const TileShape& shape, const uint8_t* query_mask, int item, int row) {
  uint32_t word = 0;
  for (int half = 0; half < 2; ++half)
    if (row + 8 * half < shape.queries && (!query_mask || query_mask[item * shape.queries + row + 8 * half]))
      word |= half ? kLowerRowBits : kUpperRowBits;
  return word;
}

// The bits of tile column `tile` with key <= query.
__device__ uint32_t causal_bits(int row, int tile, int lane) {
  uint32_t word = 0;
  for (int j = 0; j < 8; ++j)
    for (int e = 0; e < 4; ++e)
      if (tile * 64 + 8 * j + 2 * (lane % 4) + (e & 1) <= row + 8 * (e >> 1)) word |= 1u << (7 + 8 * e - j);
  return word;
}

}  // namespace
}  // namespace edgewise::kernels::cuda
