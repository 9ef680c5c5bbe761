// Dropout on the weights of the pairs that lists of windows name (window_params.h): for each entry, which of
// its bits are dropped. Only edges are drawn, so the cost follows their number.
//
// A warp has one window. Its entries, part after part, are dealt out to the lanes, which draw the first edge
// of each, mostly the only one. What an entry has beyond is put by until there is enough for all lanes.
#include "kernels/cuda/device/pair_dropout.cuh"
#include "kernels/cuda/windows/window_params.h"

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
  __shared__ uint2 waiting_of_warps[kWarps][64];  // place and entry
  uint2* const waiting = waiting_of_warps[threadIdx.x / 32];
  const unsigned before = (1u << lane) - 1;

  // Whether the first edge of an entry is dropped: its bit, or 0.
  const auto first_dropped = [&](int place, uint32_t entry) -> uint32_t {
    const int bit = __ffs(static_cast<int>(entry)) - 1, own = window * kWindow + token_of_bit<kByKeys>(bit),
              other = place / kWindowBlock * kWindowBlock + static_cast<int>(entry >> 16);
    return pair_dropped(key, kByKeys ? other : own, kByKeys ? own : other, limit) ? 1u << bit : 0;
  };
  // Puts by what is left of an entry after its first edge.
  int size = 0;
  const auto put_by = [&](int place, uint32_t entry) {
    const uint32_t rest = entry & (entry - 1);
    const bool more = (entry & 0xFFFF) && (rest & 0xFFFF);
    const unsigned votes = __ballot_sync(~0u, more);
    if (more) waiting[size + __popc(votes & before)] = make_uint2(place, rest);
    size += __popc(votes);
    __syncwarp();
  };
  const auto take_up = [&](int count) {
    size -= count;
    const uint2 taken = lane < count ? waiting[size + lane] : uint2{};
    __syncwarp();
    if (lane < count)
      if (const uint32_t bit = first_dropped(taken.x, taken.y)) to[taken.x] |= static_cast<uint16_t>(bit);
    put_by(taken.x, taken.y);
  };

  int block = 0, count = kWindow * __ldg(turns), at = lane;  // of this lane's entry
  while (true) {
    while (at >= count && block < blocks) {
      at -= count;
      count = ++block < blocks ? kWindow * __ldg(turns + block) : 0;
    }
    const bool exists = block < blocks;
    if (!__any_sync(~0u, exists)) break;
    const int place = block * kWindowBlock + at;
    const uint32_t entry = exists ? __ldg(entries + place) : 0;
    if (exists) to[place] = static_cast<uint16_t>(entry & 0xFFFF ? first_dropped(place, entry) : 0);
    put_by(place, entry);
    while (size >= 32) take_up(32);
    at += 32;
  }
  while (size > 0) take_up(min(size, 32));
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
