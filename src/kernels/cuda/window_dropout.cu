// Dropout on the weights of the pairs that lists of windows name (window_params.h): for each entry, which of
// its bits are dropped. Only edges are drawn, so the cost follows their number.
//
// A warp has one window. Its entries, part after part, are dealt out to the lanes, and a lane draws one edge
// a turn: it goes on to its next entry when it has no edge left, so that lanes whose entries have several
// hold nobody up.
#include "kernels/cuda/pair_dropout.cuh"
#include "kernels/cuda/window_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kWarps = 8;

// Which token of the window a bit of an entry stands for; by keys the inverse of window_bit_of_key.
template <bool kByKeys>
__device__ int token_of_bit(int bit) {
  return kByKeys ? 8 * (1 - bit % 2) + 2 * (bit / 2 % 4) + bit / 8 : bit;
}

template <bool kByKeys>
__global__ void __launch_bounds__(kWarps * 32)
    drop_windows(const __grid_constant__ DropWindowsParams p, uint32_t limit) {
  const int lane = threadIdx.x % 32, head = blockIdx.y;
  if (!p.sparse.has(head)) return;
  const int64_t outer = kByKeys ? p.shape.keys : p.shape.queries,
                inner = kByKeys ? p.shape.queries : p.shape.keys;
  const int windows = static_cast<int>(WindowLists::windows(outer)),
            blocks = static_cast<int>(WindowLists::blocks(inner));
  const int window = blockIdx.x * kWarps + threadIdx.x / 32;
  if (window >= windows) return;
  const int64_t index = (static_cast<int64_t>(head) * windows + window) * blocks;
  const uint8_t* const turns = p.lists.turns + index;
  const uint32_t* const entries = p.lists.entries + index * kWindowBlock;
  uint16_t* const to = p.dropped + index * kWindowBlock;
  const uint64_t key = p.stream_keys[head];

  int block = 0, count = kWindow * __ldg(turns), at = lane - 32;  // of this lane's entry
  uint32_t entry = 0, rest = 0, dropped = 0;
  while (true) {
    while (rest == 0) {
      if (at >= 0) to[block * kWindowBlock + at] = static_cast<uint16_t>(dropped);
      at += 32;
      while (at >= count && block < blocks) {
        at -= count;
        count = ++block < blocks ? kWindow * __ldg(turns + block) : 0;
      }
      if (block == blocks) return;
      entry = __ldg(entries + block * kWindowBlock + at);
      rest = entry & 0xFFFF;
      dropped = 0;
    }
    const int bit = __ffs(static_cast<int>(rest)) - 1, own = window * kWindow + token_of_bit<kByKeys>(bit),
              other = block * kWindowBlock + static_cast<int>(entry >> 16);
    const bool gone = pair_dropped(key, kByKeys ? other : own, kByKeys ? own : other, limit);
    dropped |= static_cast<uint32_t>(gone) << bit;
    rest &= rest - 1;
  }
}

}  // namespace

int launch_drop_windows(const DropWindowsParams& p, Stream given) {
  if (p.shape.words() == 0) return cudaSuccess;
  const int64_t windows = WindowLists::windows(p.by_keys ? p.shape.keys : p.shape.queries);
  const dim3 grid(static_cast<unsigned>((windows + kWarps - 1) / kWarps),
                  static_cast<unsigned>(p.shape.batch * p.shape.heads));
  const auto stream = static_cast<cudaStream_t>(given);
  const uint32_t limit = dropout_limit(p.p);
  if (p.by_keys)
    drop_windows<true><<<grid, kWarps * 32, 0, stream>>>(p, limit);
  else
    drop_windows<false><<<grid, kWarps * 32, 0, stream>>>(p, limit);
  return cudaGetLastError();
}

}  // namespace edgewise::kernels::cuda
