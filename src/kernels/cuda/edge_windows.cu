// Lists of windows (window_params.h) from bit tiles, by queries or by keys. A warp has one window and goes
// through its inner tokens a block, four tiles, at a time; of a block each lane gets eight inner tokens and
// the 16 bits of each.
//
// By queries: in the layout of a tile a lane holds, of 16 rows and 64 columns, the bits of rows g and g + 8
// and of columns 8 j + 2 t + h. An exchange of bits between the eight lanes that differ in g gives every lane
// two whole columns a tile. By keys: a lane has 4 x 8 bits of the window's 16 columns; two exchanges of bytes
// between the four lanes that differ in t give every lane two whole rows.
#include "kernels/bit_tiles.h"
#include "kernels/cuda/window_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 8, kTiles = kWindowBlock / kTileSide, kSlots = 2 * kTiles;

// Each byte of the eight lanes that differ in g (lane = 4 g + t) is an 8 x 8 matrix of bits; transposes them
// all.
__device__ uint32_t transpose_bytes(uint32_t x, int lane) {
  const auto step = [&](int distance, int shift, uint32_t low) {
    const uint32_t other = __shfl_xor_sync(~0u, x, distance);
    x = lane & distance ? (x & ~low) | (other >> shift & low) : (x & low) | (other & low) << shift;
  };
  step(16, 4, 0x0F0F0F0Fu);
  step(8, 2, 0x33333333u);
  step(4, 1, 0x55555555u);
  return x;
}

// Two bits of each byte, those at 0 and 1, side by side in the highest byte.
__device__ uint32_t pairs_on_top(uint32_t x) {
  return (x & 0x03030303u) * 0x01041040u;
}

// What a lane gets of a block: slot s = 2 n + h is of tile n.
template <bool kByKeys>
struct BlockBits;

template <>
struct BlockBits<false> {
  static __device__ void read(const uint32_t* from, int64_t, int, int tiles, int lane,
                              uint32_t (&bits)[kSlots]) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) bits[2 * n] = n < tiles ? __ldg(from + n * kTileWords) : 0;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const uint32_t word = transpose_bytes(bits[2 * n], lane);
      // The 16 rows of column 8 (7 - g) + 2 t + h.
      bits[2 * n] = __byte_perm(word, 0, 0x4420);
      bits[2 * n + 1] = __byte_perm(word, 0, 0x4431);
    }
  }
  static __device__ int token(int slot, int g, int t) {
    return slot / 2 * 64 + 8 * (7 - g) + 2 * t + slot % 2;
  }
};

template <>
struct BlockBits<true> {
  static __device__ void read(const uint32_t* from, int64_t stride, int part, int tiles, int lane,
                              uint32_t (&bits)[kSlots]) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      uint32_t words[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) words[w] = n < tiles ? __ldg(from + n * stride + 32 * w) : 0;
        // Of rows 16 w + g and + 8 the window's columns 8 jj + 2 t + h as bit 4 half + 2 h + 1 - jj of byte
        // w.
#pragma unroll
      for (uint32_t& word : words) word = pairs_on_top(word >> (6 - 2 * part));
      uint32_t bytes = __byte_perm(__byte_perm(words[0], words[1], 0x0073),
                                   __byte_perm(words[2], words[3], 0x0073), 0x5410);
      bytes = __byte_perm(bytes, __shfl_xor_sync(~0u, bytes, 1), lane & 1 ? 0x3715 : 0x6240);
      bytes = __byte_perm(bytes, __shfl_xor_sync(~0u, bytes, 2), lane & 2 ? 0x3276 : 0x5410);
      // Now byte t' is from lane t', of rows 16 t + g and + 8.
#pragma unroll
      for (int half = 0; half < 2; ++half)
        bits[2 * n + half] =
            __byte_perm(pairs_on_top(bytes >> (4 * half)), pairs_on_top(bytes >> (4 * half + 2)), 0x0073) &
            0xFFFF;
    }
  }
  static __device__ int token(int slot, int g, int t) {
    return slot / 2 * 64 + 16 * t + 8 * (slot % 2) + g;
  }
};

// Entries leave in rounds: the first of each bank (token % 8), the second of each, ... so that neighbours
// differ in their banks until banks run out.
template <bool kByKeys>
__global__ void __launch_bounds__(kWarps * 32) build_windows(const __grid_constant__ BuildWindowsParams p) {
  __shared__ uint4 gathered[kWarps][kWindowBlock / 4];
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32, head = blockIdx.y;
  if (!p.sparse.has(head)) return;
  const int64_t rows = p.shape.row_tiles(), columns = p.shape.column_tiles();
  const int64_t outer = kByKeys ? p.shape.keys : p.shape.queries,
                inner = kByKeys ? p.shape.queries : p.shape.keys;
  const int windows = static_cast<int>(WindowLists::windows(outer)),
            blocks = static_cast<int>(WindowLists::blocks(inner)),
            inner_tiles = static_cast<int>(kByKeys ? rows : columns);
  const int window = blockIdx.x * kWarps + warp;
  if (window >= windows) return;
  const int64_t index = (static_cast<int64_t>(head) * windows + window) * blocks;
  const uint32_t* from = p.tiles + lane +
                         (kByKeys ? (head * rows * columns + window / 4) * kTileWords
                                  : (head * rows + window / 4) * columns * kTileWords + window % 4 * 32);
  const int64_t stride = kByKeys ? columns * kTileWords : kTileWords;
  uint32_t* const list = reinterpret_cast<uint32_t*>(gathered[warp]);
  const unsigned before = (1u << lane) - 1, members = kByKeys ? 0xFu << (4 * g) : 0x11111111u << t;

  for (int block = 0; block < blocks; ++block) {
    uint32_t bits[kSlots];
    BlockBits<kByKeys>::read(from, stride, window % 4, inner_tiles - block * kTiles, lane, bits);
    from += kTiles * stride;
    // The rank of each entry in its bank, which is g, or 2 t + h.
    int ranks[kSlots], counts[2] = {};
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const unsigned full = __ballot_sync(~0u, bits[s] != 0) & members;
      int& count = counts[kByKeys ? 0 : s % 2];
      ranks[s] = count + __popc(full & before);
      count += __popc(full);
    }
    // Lane r: which banks have an entry of rank r, and how many entries there are before that round.
    uint32_t banks = 0;
    const int packed = kByKeys ? counts[0] : counts[0] | counts[1] << 8;
#pragma unroll
    for (int n = 0; n < (kByKeys ? 8 : 4); ++n) {
      const int there = __shfl_sync(~0u, packed, kByKeys ? 4 * n : n);
      if constexpr (kByKeys) {
        banks |= static_cast<uint32_t>(there > lane) << n;
      } else {
        banks |= static_cast<uint32_t>((there & 0xFF) > lane) << (2 * n);
        banks |= static_cast<uint32_t>((there >> 8) > lane) << (2 * n + 1);
      }
    }
    int sum = __popc(banks);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += other;
    }
    const uint32_t round = static_cast<uint32_t>(sum - __popc(banks)) << 8 | banks;
    const int total = __shfl_sync(~0u, sum, 31), filled = (total + 15) & ~15;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const uint32_t mine = __shfl_sync(~0u, round, ranks[s] & 31);
      const int bank = kByKeys ? g : 2 * t + s % 2;
      const int place = static_cast<int>(mine >> 8) + __popc(mine & ((1u << bank) - 1));
      if (bits[s]) list[place] = static_cast<uint32_t>(BlockBits<kByKeys>::token(s, g, t)) << 16 | bits[s];
    }
    if (total + lane < filled) list[total + lane] = 0;
    __syncwarp();
    auto* const to = reinterpret_cast<uint4*>(p.lists.entries + (index + block) * kWindowBlock);
    for (int at = lane; at < filled / 4; at += 32) to[at] = gathered[warp][at];
    if (lane == 0) p.lists.turns[index + block] = static_cast<uint8_t>(filled / 16);
    __syncwarp();
  }
}

}  // namespace

int launch_build_windows(const BuildWindowsParams& p, Stream given) {
  if (p.shape.words() == 0) return cudaSuccess;
  const int64_t windows = WindowLists::windows(p.by_keys ? p.shape.keys : p.shape.queries);
  const dim3 grid(static_cast<unsigned>((windows + kWarps - 1) / kWarps),
                  static_cast<unsigned>(p.shape.batch * p.shape.heads));
  const auto stream = static_cast<cudaStream_t>(given);
  if (p.by_keys)
    build_windows<true><<<grid, kWarps * 32, 0, stream>>>(p);
  else
    build_windows<false><<<grid, kWarps * 32, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
