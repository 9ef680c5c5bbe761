// Bit planes beside the edges: which absent pairs are probed (128 coins at a time, pair_numbers.h), and which
// edges dropout removes (pair_dropout.cuh).
#include "kernels/cuda/device/pair_dropout.cuh"
#include "kernels/cuda/tiles/bit_tiles.cuh"
#include "kernels/cuda/tiles/tile_masks.cuh"
#include "kernels/cuda/tiles/tile_params.h"
#include "kernels/pair_numbers.h"

namespace edgewise::kernels::cuda {
namespace {

// Where a warp is that owns the 16 x 64 pairs of one quarter of a tile.
struct QuarterTile {
  int lane, head, item, tile, row;  // row: the first of this lane's two
  int64_t index;                    // of the quarter, over all heads
  bool exists;

  __device__ explicit QuarterTile(const TileShape& shape, int two_tiles = blockIdx.x) {
    const int columns = static_cast<int>(shape.column_tiles()), part = threadIdx.x / 32 % 4;
    lane = threadIdx.x % 32, head = blockIdx.z, item = head / static_cast<int>(shape.heads);
    tile = two_tiles * 2 + threadIdx.x / 128;
    exists = tile < columns;
    row = blockIdx.y * 64 + part * 16 + lane / 4;
    index = ((static_cast<int64_t>(head) * shape.row_tiles() + blockIdx.y) * columns + tile) * 4 + part;
  }
  static dim3 grid(const TileShape& shape) {
    return dim3((shape.column_tiles() + 1) / 2, shape.row_tiles(), shape.batch * shape.heads);
  }
};

// Of the four lanes that share two rows, lane t has 32 bits of row t % 2, columns 32 (t / 2) .. + 31. Gives
// every lane the word of its own places.
__device__ uint32_t share_bits(uint32_t mine, int lane) {
  uint32_t word = 0;
#pragma unroll
  for (int from = 0; from < 4; ++from) {
    // Bits 8 j' + 2 t + h (j' = 0..3) -> places 7 + 8 (2 row_half + h) - (4 column_half + j'): the product
    // brings bits 0, 8, 16, 24 to 27, 26, 25, 24.
    const uint32_t bits = __shfl_sync(~0u, mine, lane / 4 * 4 + from) >> (2 * (lane % 4));
    const uint32_t even = ((bits & 0x01010101u) * 0x08040201u) >> 24 & 0xF,
                   odd = ((bits >> 1 & 0x01010101u) * 0x08040201u) >> 24 & 0xF;
    word |= (even | odd << 8) << (16 * (from & 1) + (from >> 1 ? 0 : 4));
  }
  return word;
}

// A thread draws the four words of two rows of a tile, a warp a whole tile.
constexpr int kProbeThreads = 256, kProbeTiles = kProbeThreads / 32;
__global__ void tile_probes(const __grid_constant__ TileProbeParams p) {
  __shared__ uint32_t drawn[4][kProbeThreads];
  const int columns = static_cast<int>(p.shape.column_tiles()), rows = static_cast<int>(p.shape.row_tiles());
  const int block = threadIdx.x % 32, tile = blockIdx.x * kProbeTiles + threadIdx.x / 32,
            row_tile = blockIdx.y;
  const int head = blockIdx.z, item = head / static_cast<int>(p.shape.heads);
  if (tile >= columns) return;
  const int64_t index = ((static_cast<int64_t>(head) * rows + row_tile) * columns + tile) * 32 + block;
  const int row = row_tile * 64 + block / 8 * 16 + block % 8;  // and row + 8
  const uint32_t rows_here = valid_rows(p.shape, p.query_mask, item, row);
  const uint4 edges = reinterpret_cast<const uint4*>(p.tiles)[index];
  const uint4 valid =
      reinterpret_cast<const uint4*>(p.column_words)[static_cast<int64_t>(item) * columns + tile];
  const CoinLaw& law = p.laws[item];
  coins(p.stream_keys[head], row_tile * 32 + block, tile, law,
        [&](uint32_t n) -> uint32_t& { return drawn[n][threadIdx.x]; });
  const uint32_t absent[4] = {valid.x & ~edges.x, valid.y & ~edges.y, valid.z & ~edges.z, valid.w & ~edges.w};
  uint32_t words[4];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    words[t] = (drawn[t][threadIdx.x] ^ law.turned) & absent[t] & rows_here;
    if (p.is_causal && tile >= row_tile) words[t] &= causal_bits(row, tile, t);
  }
  reinterpret_cast<uint4*>(p.probes)[index] = make_uint4(words[0], words[1], words[2], words[3]);
}

// A number below `limit` drops its pair. A block has several tiles, so that heads that are left out cost
// little.
constexpr int kDropoutTurns = 8;
__global__ void tile_dropout(const __grid_constant__ TileDropoutParams p, uint32_t limit) {
  if (p.left_out.has(blockIdx.z)) return;
  const uint64_t key = p.stream_keys[blockIdx.z];
#pragma unroll 1
  for (int turn = 0; turn < kDropoutTurns; ++turn) {
    const QuarterTile at(p.shape, blockIdx.x * kDropoutTurns + turn);
    if (!at.exists) return;
    const uint32_t row = at.row + 8 * (at.lane & 1), first = (at.tile * 64 + at.lane % 4 / 2 * 32) / 4;
    uint32_t mine = 0;
    for (int block = 0; block < 8; ++block) {
      const PairWords words = dropout_words(key, row, first + block);
#pragma unroll
      for (int n = 0; n < 4; ++n) mine |= static_cast<uint32_t>(words.word[n] < limit) << (4 * block + n);
    }
    p.dropped[at.index * 32 + at.lane] = share_bits(mine, at.lane) & p.tiles[at.index * 32 + at.lane];
  }
}

}  // namespace

int launch_tile_probes(const TileProbeParams& p, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  if (p.shape.words() == 0) return cudaSuccess;
  launch_mark_columns(p.shape, p.key_mask, p.column_words, stream);
  const dim3 grid((p.shape.column_tiles() + kProbeTiles - 1) / kProbeTiles, p.shape.row_tiles(),
                  p.shape.batch * p.shape.heads);
  tile_probes<<<grid, kProbeThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

int launch_tile_dropout(const TileDropoutParams& p, Stream stream) {
  if (p.shape.words() == 0) return cudaSuccess;
  dim3 grid = QuarterTile::grid(p.shape);
  grid.x = (grid.x + kDropoutTurns - 1) / kDropoutTurns;
  tile_dropout<<<grid, 256, 0, static_cast<cudaStream_t>(stream)>>>(p, dropout_limit(p.p));
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
