// Probes in units (probe_units.h) as a bit plane: the absent pairs of the chosen squares of 16 x 16. A warp
// has eight neighbouring tiles of 4 x 4 squares; a lane draws those of one row of squares of one tile.
//
// Of a row of squares of a tile, 32 words, nothing is written where none is chosen: nine in ten at a rate of
// 2 %. Who asks for chosen squares alone needs no more; for others clear_unchosen writes the rest.
#include "kernels/cuda/tiles/tile_masks.cuh"
#include "kernels/probe_units.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 4, kTiles = 8;  // tiles of a warp

// The bits of a word that lie in the chosen ones of four neighbouring squares.
__device__ uint32_t square_bits(uint32_t chosen) {
  const uint32_t bits = (chosen & 1 ? 0xC0u : 0) | (chosen & 2 ? 0x30u : 0) | (chosen & 4 ? 0x0Cu : 0) |
                        (chosen & 8 ? 0x03u : 0);
  return bits * 0x01010101u;
}

__global__ void unit_probes(const __grid_constant__ UnitProbeParams p) {
  const int columns = static_cast<int>(p.shape.column_tiles()), rows = static_cast<int>(p.shape.row_tiles());
  const int lane = threadIdx.x % 32, first = (blockIdx.x * kWarps + threadIdx.x / 32) * kTiles,
            row_tile = blockIdx.y, head = blockIdx.z, item = head / static_cast<int>(p.shape.heads);
  if (first >= columns) return;
  const int64_t strip = static_cast<int64_t>(head) * rows + row_tile;
  uint32_t mine = 0;
  {
    const int tile = first + lane / 4, part = lane % 4;
    const PairWords numbers = unit_numbers(p.stream_keys[head], row_tile * 4 + part, tile);
    const double limit = unit_limit(p.rates[item]);
    if (tile < columns) {
#pragma unroll
      for (int n = 0; n < 4; ++n) mine |= static_cast<uint32_t>(numbers.word[n] < limit) << n;
    }
    // The flags, by queries; and by keys, where lane n of a tile has column n of its squares.
    uint32_t turned = 0;
#pragma unroll
    for (int n = 0; n < 4; ++n) turned |= (__shfl_sync(~0u, mine, (lane & ~3) + n) >> part & 1) << n;
    const int64_t row_bytes = (p.shape.keys + 255) / 256 * 4,
                  column_bytes = (p.shape.queries + 255) / 256 * 4;
    if (mine) p.by_queries[(strip * 4 + part) * row_bytes + tile] = static_cast<uint8_t>(mine);
    if (turned)
      p.by_keys[((static_cast<int64_t>(head) * columns + tile) * 4 + part) * column_bytes + row_tile] =
          static_cast<uint8_t>(turned);
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int tile = first + n;
    if (tile >= columns) return;
    const int64_t at = (strip * columns + tile) * kTileWords + lane;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint32_t chosen = __shfl_sync(~0u, mine, 4 * n + w);
      if (!chosen) continue;
      const int row = row_tile * 64 + w * 16 + lane / 4;
      uint32_t word = square_bits(chosen) & ~p.tiles[at + 32 * w] &
                      valid_rows(p.shape, p.query_mask, item, row) &
                      p.column_words[(static_cast<int64_t>(item) * columns + tile) * 4 + lane % 4];
      if (p.is_causal && tile >= row_tile) word &= causal_bits(row, tile, lane);
      p.probes[at + 32 * w] = word;
    }
  }
}

// A warp has a row of squares, all its tiles.
__global__ void clear_unchosen(TileShape shape, const uint8_t* by_queries, uint32_t* probes,
                               FewEdges without) {
  const int columns = static_cast<int>(shape.column_tiles()), lane = threadIdx.x % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;  // over all heads
  if (row >= shape.batch * shape.heads * shape.row_tiles() * 4) return;
  if (without.has(row / (shape.row_tiles() * 4))) return;
  const uint8_t* const flags = by_queries + row * ((shape.keys + 255) / 256 * 4);
  uint32_t* const words = probes + row / 4 * columns * kTileWords + row % 4 * 32 + lane;
  for (int first = 0; first < columns; first += 32) {
    const bool empty = first + lane < columns && flags[first + lane] == 0;
    const unsigned all = __ballot_sync(~0u, empty);
#pragma unroll 4
    for (int n = 0; n < 32; ++n)
      if (all >> n & 1) words[static_cast<int64_t>(first + n) * kTileWords] = 0;
  }
}

}  // namespace

int launch_unit_probes(const UnitProbeParams& p, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  if (p.shape.words() == 0) return cudaSuccess;
  launch_mark_columns(p.shape, p.key_mask, p.column_words, stream);
  const dim3 grid(static_cast<unsigned>((p.shape.column_tiles() + kWarps * kTiles - 1) / (kWarps * kTiles)),
                  static_cast<unsigned>(p.shape.row_tiles()),
                  static_cast<unsigned>(p.shape.batch * p.shape.heads));
  unit_probes<<<grid, kWarps * 32, 0, stream>>>(p);
  return cudaGetLastError();
}

int launch_clear_unchosen(const TileShape& shape, const uint8_t* by_queries, uint32_t* probes,
                          const FewEdges& without, Stream given) {
  const int64_t rows = shape.batch * shape.heads * shape.row_tiles() * 4;
  if (shape.words() == 0) return cudaSuccess;
  clear_unchosen<<<static_cast<unsigned>((rows + kWarps - 1) / kWarps), kWarps * 32, 0,
                   static_cast<cudaStream_t>(given)>>>(shape, by_queries, probes, without);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
