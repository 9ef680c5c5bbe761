// Bit tiles from and to other layouts: transposition, CSR.
#include "kernels/cuda/tiles/bit_tiles.cuh"
#include "kernels/cuda/tiles/tile_params.h"

namespace edgewise::kernels::cuda {
namespace {

// Exchanges the bits of `x` and `y` that `mask` names in y, with those `shift` places higher in x: after it,
// x's upper half of each pair of places comes from y's lower half and the reverse.
__device__ void exchange(uint32_t& x, uint32_t& y, int shift, uint32_t mask) {
  const uint32_t difference = ((x >> shift) ^ y) & mask;
  y ^= difference;
  x ^= difference << shift;
}

// Twelve index bits name an element of a tile. Query q = [w1 w0 e1 g2 g1 g0], key k = [j2 j1 j0 t1 t0 e0]
// (lane = 4 g + t, word w, element (j, e)). In the transposed tile query and key change places, so the new
// word is [j2 j1], the new lane [t1 t0 e0 g2 g1] and the new place in the word [e1' e0' j'] = [j0 g0 w1 w0
// e1]. One warp moves one tile: j2 j1 and w1 w0 change places within a lane, e0 and g0 between neighbouring
// lanes, and the rest is where a lane stores.
//
// Places are 7 + 8 e - j: e is [place4 place3], j counts down in the low three bits, so j2, j1, j0 are the
// complements of place bits 2, 1, 0.
__global__ void transpose_tiles(TileShape shape, const uint32_t* tiles, uint32_t* transposed,
                                FewEdges without) {
  const int64_t head = blockIdx.z;
  if (without.has(head)) return;
  const int lane = threadIdx.x % 32, row = blockIdx.y, warps = blockDim.x / 32;
  const int rows = static_cast<int>(shape.row_tiles()), columns = static_cast<int>(shape.column_tiles());
  for (int column = blockIdx.x * warps + threadIdx.x / 32; column < columns; column += gridDim.x * warps) {
    uint32_t w[4];
#pragma unroll
    for (int n = 0; n < 4; ++n)
      w[n] = tiles[((head * rows + row) * columns + column) * kTileWords + n * 32 + lane];
    uint32_t* const out = transposed + ((head * columns + column) * rows + row) * kTileWords;
    if (!__any_sync(~0u, (w[0] | w[1] | w[2] | w[3]) != 0)) {  // most tiles of probes in squares
#pragma unroll
      for (int n = 0; n < 4; ++n) out[n * 32 + lane] = 0;
      continue;
    }

    // e0 (place bit 3) <-> g0 (lane bit 2): a lane keeps the half that stays and receives its partner's other
    // half.
    const bool odd = lane & 4;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      constexpr uint32_t kLow = 0x00FF00FFu;  // places with e0 = 0
      const uint32_t give = odd ? w[n] & kLow : (w[n] >> 8) & kLow;
      const uint32_t take = __shfl_xor_sync(~0u, give, 4);
      w[n] = odd ? ((w[n] & ~kLow) | take) : ((w[n] & kLow) | (take << 8));
    }
    // Now lane bit 2 is e0 and place bit 3 is g0. Word bits [w1 w0] <-> place bits [2 1] (complemented j2
    // j1): after the exchange word n holds the elements whose place bits were n, that is j2 j1 = 3 - n, and
    // place bits [2 1] are [w1 w0].
    exchange(w[0], w[2], 4, 0x0F0F0F0Fu);
    exchange(w[1], w[3], 4, 0x0F0F0F0Fu);
    exchange(w[0], w[1], 2, 0x33333333u);
    exchange(w[2], w[3], 2, 0x33333333u);
    // Places are now [e1 g0 w1 w0 ~j0]; wanted [e1' e0' ~j'2 ~j'1 ~j'0] = [j0 g0 ~w1 ~w0 ~e1].
    const int g = lane / 4, t = lane % 4;  // g2 g1 as before, lane bit 2 = e0
    const int to_lane = (t << 3) | ((g & 1) << 2) | (g >> 1);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      uint32_t x = w[n];
      // Complement of place bits 2 and 1: reverse the order of the four pairs in every byte.
      x = ((x >> 4) & 0x0F0F0F0Fu) | ((x & 0x0F0F0F0Fu) << 4);
      x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
      // Place bit 4 (e1) <-> place bit 0 (~j0), both complemented on the way: j0 = 1, e1 = 0 (places 0 and 0)
      // go to place bits 4 = 1 and 0 = 1. Keep those with e1 = j0 ... (place bit 4, bit 0) = (e1, ~j0) ->
      // (j0, ~e1).
      const uint32_t both =
          x &
          0x5555AAAAu;  // (0, 1) and (1, 0): j0 = 0, e1 = 0 -> (0, 1) stays; j0 = 1, e1 = 1 -> (1, 0) stays
      const uint32_t up = (x & 0x00005555u) << 17;    // (0, 0): e1 = 0, j0 = 1 -> (1, 1)
      const uint32_t down = (x & 0xAAAA0000u) >> 17;  // (1, 1): e1 = 1, j0 = 0 -> (0, 0)
      out[(3 - n) * 32 + to_lane] = both | up | down;
    }
  }
}

// One warp a tile.
__global__ void mark_used_tiles(int64_t count, const uint32_t* tiles, uint8_t* flags) {
  const int64_t tile = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (tile >= count) return;
  const uint4 words = reinterpret_cast<const uint4*>(tiles)[tile * (kTileWords / 4) + threadIdx.x % 32];
  const bool any = __any_sync(~0u, (words.x | words.y | words.z | words.w) != 0);
  if (threadIdx.x % 32 == 0) flags[tile] = any;
}

// One warp a row of edges.
__global__ void csr_to_tiles(TileShape shape, const int64_t* row_offsets, const int32_t* col_indices,
                             uint32_t* tiles, int32_t* bad) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= shape.batch * shape.heads * shape.queries) return;
  const int64_t head = row / shape.queries;
  const int query = row % shape.queries, in_tile = query % kTileSide;
  uint32_t* const strip =
      tiles + (head * shape.row_tiles() + query / kTileSide) * shape.column_tiles() * kTileWords;
  for (int64_t e = row_offsets[row] + threadIdx.x % 32; e < row_offsets[row + 1]; e += 32) {
    const int column = col_indices[e];
    if (column < 0 || column >= shape.keys) {
      if (bad) atomicAdd(bad, 1);
      continue;
    }
    atomicOr(strip + static_cast<int64_t>(column / kTileSide) * kTileWords +
                 tile_word(in_tile, column % kTileSide),
             1u << tile_bit(in_tile, column % kTileSide));
  }
}

// The 64 bits of one row of a tile, column order.
__device__ uint64_t row_bits(const uint32_t* tile, int row) {
  uint64_t bits = 0;
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const uint32_t word = tile[(row / 16) * 32 + (row % 8) * 4 + t] >> (row % 16 / 8 * 16);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      bits |= static_cast<uint64_t>(word >> (7 - j) & 1) << (8 * j + 2 * t);
      bits |= static_cast<uint64_t>(word >> (15 - j) & 1) << (8 * j + 2 * t + 1);
    }
  }
  return bits;
}

// One warp a row; each lane a tile of it.
template <bool kWrite>
__global__ void visit_rows(TileShape shape, const uint32_t* tiles, int32_t* degrees,
                           const int64_t* row_offsets, int32_t* columns) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= shape.batch * shape.heads * shape.queries) return;
  const int64_t head = row / shape.queries;
  const int query = row % shape.queries;
  const uint32_t* const strip =
      tiles + (head * shape.row_tiles() + query / kTileSide) * shape.column_tiles() * kTileWords;
  int64_t written = kWrite ? row_offsets[row] : 0;
  for (int first = 0; first < shape.column_tiles(); first += 32) {
    const int tile = first + lane;
    uint64_t bits = tile < shape.column_tiles()
                        ? row_bits(strip + static_cast<int64_t>(tile) * kTileWords, query % kTileSide)
                        : 0;
    int before = __popcll(bits);
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, before, step);
      if (lane >= step) before += other;
    }
    const int total = __shfl_sync(~0u, before, 31);
    if constexpr (kWrite) {
      int64_t place = written + before - __popcll(bits);
      for (; bits; bits &= bits - 1) columns[place++] = tile * kTileSide + __ffsll(bits) - 1;
    }
    written += total;
  }
  if (!kWrite && lane == 0) degrees[row] = static_cast<int32_t>(written);
}

unsigned warps_to_blocks(int64_t warps) {
  return static_cast<unsigned>((warps + 7) / 8);
}

}  // namespace

int launch_transpose_tiles(const TileShape& shape, const uint32_t* tiles, uint32_t* transposed,
                           const FewEdges& without, Stream stream) {
  if (shape.words() == 0) return cudaSuccess;
  // A warp takes a few tiles, so that heads that are left out cost little.
  const dim3 grid(static_cast<unsigned>((shape.column_tiles() + 31) / 32),
                  static_cast<unsigned>(shape.row_tiles()), static_cast<unsigned>(shape.batch * shape.heads));
  transpose_tiles<<<grid, 256, 0, static_cast<cudaStream_t>(stream)>>>(shape, tiles, transposed, without);
  return cudaGetLastError();
}

int launch_mark_used_tiles(const TileShape& shape, const uint32_t* tiles, uint8_t* flags, Stream stream) {
  const int64_t count = shape.words() / kTileWords;
  if (count == 0) return cudaSuccess;
  mark_used_tiles<<<warps_to_blocks(count), 256, 0, static_cast<cudaStream_t>(stream)>>>(count, tiles, flags);
  return cudaGetLastError();
}

int launch_csr_to_tiles(const TileShape& shape, const int64_t* row_offsets, const int32_t* col_indices,
                        uint32_t* tiles, int32_t* bad, Stream stream) {
  const int64_t rows = shape.batch * shape.heads * shape.queries;
  if (rows == 0) return cudaSuccess;
  csr_to_tiles<<<warps_to_blocks(rows), 256, 0, static_cast<cudaStream_t>(stream)>>>(shape, row_offsets,
                                                                                     col_indices, tiles, bad);
  return cudaGetLastError();
}

int launch_tile_degrees(const TileShape& shape, const uint32_t* tiles, int32_t* degrees, Stream stream) {
  const int64_t rows = shape.batch * shape.heads * shape.queries;
  if (rows == 0) return cudaSuccess;
  visit_rows<false><<<warps_to_blocks(rows), 256, 0, static_cast<cudaStream_t>(stream)>>>(
      shape, tiles, degrees, nullptr, nullptr);
  return cudaGetLastError();
}

int launch_tiles_to_columns(const TileShape& shape, const uint32_t* tiles, const int64_t* row_offsets,
                            int32_t* columns, Stream stream) {
  const int64_t rows = shape.batch * shape.heads * shape.queries;
  if (rows == 0) return cudaSuccess;
  visit_rows<true><<<warps_to_blocks(rows), 256, 0, static_cast<cudaStream_t>(stream)>>>(
      shape, tiles, nullptr, row_offsets, columns);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
