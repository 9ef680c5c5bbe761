// Lists of windows (window_params.h) from bit tiles.
//
// In the layout of a tile a lane holds, of 16 rows and 64 columns, the bits of rows g and g + 8 and of
// columns 8 j + 2 t + h, and 2 t + h is the column's bank. An exchange of bits between the eight lanes that
// differ in g gives every lane two whole columns of its banks; what is not empty is appended to the list of
// its bank, in shared memory, and a block's lists leave together.
#include "kernels/bit_tiles.h"
#include "kernels/cuda/window_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kAhead = 4, kMostBlockKeys = 768;

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

// A warp has one window.
__global__ void build_windows(const __grid_constant__ BuildWindowsParams p) {
  __shared__ uint4 gathered[kWarps][kMostBlockKeys / 4];
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
  const int head = blockIdx.y, column_tiles = static_cast<int>(p.shape.column_tiles());
  const bool chosen = static_cast<double>(p.edge_counts[head]) <= p.most_edges;
  if (blockIdx.x == 0 && threadIdx.x == 0) p.by_windows[head] = chosen;
  const int windows = static_cast<int>(WindowLists::windows(p.shape.queries));
  const int window = blockIdx.x * kWarps + warp;
  if (window >= windows || !chosen) return;
  const int blocks = static_cast<int>(p.lists.blocks(p.shape.keys)), block_tiles = p.lists.block_keys / 64;
  const int64_t index = static_cast<int64_t>(head) * windows + window;
  const uint32_t* from = p.tiles + (head * p.shape.row_tiles() + window / 4) * column_tiles * kTileWords +
                         window % 4 * 32 + lane;
  auto* to = reinterpret_cast<uint4*>(p.lists.entries + index * blocks * p.lists.block_keys);
  uint32_t* const list = reinterpret_cast<uint32_t*>(gathered[warp]) + 2 * t;
  const unsigned bank = 0x11111111u << t, earlier = bank & ((1u << lane) - 1);
  int counts[2] = {}, total = 0, block = 0, in_block = 0;
  for (int tile = 0; tile < column_tiles; tile += kAhead) {
    uint32_t words[kAhead];
#pragma unroll
    for (int n = 0; n < kAhead; ++n) words[n] = tile + n < column_tiles ? __ldg(from + n * kTileWords) : 0;
    from += kAhead * kTileWords;
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      if (tile + n >= column_tiles) break;
      const uint32_t word = transpose_bytes(words[n], lane),
                     place = static_cast<uint32_t>(in_block * 8 + 7 - g) << 16;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        // The 16 rows of column 8 (7 - g) + 2 t + h.
        const uint32_t bits = __byte_perm(word, 0, h ? 0x4431 : 0x4420);
        const unsigned full = __ballot_sync(~0u, bits != 0);
        if (bits) list[(counts[h] + __popc(full & earlier)) * 8 + h] = place | bits;
        counts[h] += __popc(full & bank);
      }
      if (++in_block < block_tiles && tile + n + 1 < column_tiles) continue;
      // The end of a block: all banks to the length of the longest, in pairs.
      int most = max(counts[0], counts[1]);
      most = max(most, __shfl_xor_sync(~0u, most, 1));
      most = max(most, __shfl_xor_sync(~0u, most, 2));
      most += most & 1;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        for (int filled = counts[h] + g; filled < most; filled += 8) list[filled * 8 + h] = 0;
        counts[h] = 0;
      }
      __syncwarp();
      for (int at = lane; at < most * 2; at += 32) to[at] = gathered[warp][at];
      __syncwarp();
      to += most * 2;
      total += most;
      if (lane == 0) p.lists.ends[index * blocks + block] = static_cast<uint16_t>(total / 2);
      in_block = 0;
      ++block;
    }
  }
}

}  // namespace

int launch_build_windows(const BuildWindowsParams& p, Stream given) {
  if (p.shape.words() == 0) return cudaSuccess;
  if (p.lists.block_keys > kMostBlockKeys) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>((WindowLists::windows(p.shape.queries) + kWarps - 1) / kWarps),
                  static_cast<unsigned>(p.shape.batch * p.shape.heads));
  build_windows<<<grid, kThreads, 0, static_cast<cudaStream_t>(given)>>>(p);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
