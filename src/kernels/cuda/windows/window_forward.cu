// Attention over windows (window_params.h), forward: equations as in tile_forward.cu. A warp owns the 16
// queries of a window and visits only the keys that its list names, 16 at a time, on tensor cores (mma.sync).
//
// Keys and values of a head pass through a ring of blocks in shared memory while the windows of a thread
// block stay: a key is read from the second-level cache once for them all. Warps meet nobody but the data:
// one may be some blocks ahead of another. `ldmatrix` takes an address for every row, so it gathers;
// neighbours in a list mostly lie in different banks, so it does so with few conflicts.
#include "kernels/cuda/device/bulk_copy.cuh"
#include "kernels/cuda/device/pair_dropout.cuh"
#include "kernels/cuda/device/warp_products.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/lists/attend_row.cuh"
#include "kernels/cuda/windows/window_entries.cuh"
#include "kernels/cuda/windows/window_params.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896f;

// ---- keys and values in shared memory ----

// A row of 4 D bytes for each key, its value behind it, and 16 bytes of nothing: with an odd number of
// 16-byte pieces the same piece of eight rows lies in different banks when their numbers differ modulo 8.
template <int D>
struct Rows {
  static constexpr int kPieces = 4 * D / 16, kBytes = 4 * D + 16;
  static constexpr int kBlockBytes = kWindowBlock * kBytes, kSlots = 222 * 1024 / kBlockBytes;
  static constexpr int kAhead = kSlots / 2;  // blocks on their way; the others are for warps that are behind
  static constexpr int kSharedBytes = kSlots * kBlockBytes + 128;
};

// A thread copies the same piece of every so many keys.
template <int D, int kThreads>
class RowStream {
 public:
  using Layout = Rows<D>;
  static constexpr int kStep = kThreads / Layout::kPieces;

  __device__ RowStream(const WindowForwardParams& p, int item, int head)
      : key_(threadIdx.x / Layout::kPieces), left_(static_cast<int>(p.shape.keys)) {
    const int piece = threadIdx.x % Layout::kPieces;
    const bool is_key = piece < D / 8;
    const auto& from = is_key ? p.key : p.value;
    stride_ = from.row_stride;
    from_ = from.head(item, head) + key_ * stride_ + (is_key ? piece : piece - D / 8) * 8;
    offset_ = key_ * Layout::kBytes + piece * 16;
  }
  // The next block. Entries without bits name a key of their part that is there.
  __device__ void load(uint32_t to) {
    const int count = min(left_, kWindowBlock);
#pragma unroll
    for (int n = 0; n < (kWindowBlock + kStep - 1) / kStep; ++n) {
      if (key_ + n * kStep >= count) break;
      copy_chunk(to + offset_ + n * kStep * Layout::kBytes, from_ + n * (kStep * stride_), true);
    }
    from_ += kWindowBlock * stride_;
    left_ -= kWindowBlock;
  }

 private:
  int key_, left_, offset_;
  int64_t stride_;
  const Bf16* from_;
};

// ---- the kernel ----

template <int D, int kWarps, bool kDropout>
__global__ void __launch_bounds__(kWarps * 32, 1)
    window_forward(const __grid_constant__ WindowForwardParams p, uint32_t drop_limit) {
  extern __shared__ uint8_t shared[];
  using Layout = Rows<D>;
  constexpr int kSlots = Layout::kSlots, kAhead = Layout::kAhead;
  __shared__ uint64_t full_barriers[kSlots], free_barriers[kSlots];
  const int head_index = blockIdx.y, item = head_index / p.shape.heads, head = head_index % p.shape.heads;
  if (!p.sparse.has(head_index)) return;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, k = lane % 8, m = lane / 8;
  const int queries = static_cast<int>(p.shape.queries),
            windows = static_cast<int>(WindowLists::windows(queries));
  // From one lane, so that the compiler sees that it is the same for all of a warp.
  const int window = blockIdx.x * kWarps + __shfl_sync(~0u, threadIdx.x / 32, 0), first = window * kWindow;
  const int blocks = static_cast<int>(WindowLists::blocks(p.shape.keys));
  const int64_t index = (static_cast<int64_t>(head_index) * windows + min(window, windows - 1)) * blocks;
  const uint32_t* const list = p.lists.entries + index * kWindowBlock + k;  // of key k of a half
  const uint8_t* const turns = p.lists.turns + index;
  // Which bits of keys 2 t and 2 t + 1 of a half are dropped.
  const uint32_t* const dropped =
      kDropout ? reinterpret_cast<const uint32_t*>(p.dropped + index * kWindowBlock) + t : nullptr;

  // Queries g and g + 8 of the window as operands of 16 columns each; 0 for those that do not exist.
  uint32_t query[D / 16][4];
  const Bf16* const own = p.query.head(item, head);
#pragma unroll
  for (int n = 0; n < D / 16; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = first + g + 8 * (e & 1);
      query[n][e] = row < queries ? __ldg(reinterpret_cast<const unsigned*>(own + row * p.query.row_stride +
                                                                            16 * n + 8 * (e >> 1) + 2 * t))
                                  : 0;
    }
  const float to_log2 = p.scale * kLog2E;
  float out[D / 8][4] = {}, sums[4] = {};
  uint32_t seen = 0;

  // Of 16 gathered keys, a lane asks load_matrices for piece m of key k of one half, and load_transposed for
  // piece m / 2 of key k of half m % 2.
  const uint32_t base = (shared_address(shared) + 127) & ~127u;
  const uint32_t full = shared_address(full_barriers), free = shared_address(free_barriers);
  if (threadIdx.x == 0)
    for (int n = 0; n < kSlots; ++n)
      barrier_init(full + 8 * n, kWarps * 32), barrier_init(free + 8 * n, kWarps);
  __syncthreads();
  RowStream<D, kWarps * 32> rows(p, item, head);
  const auto load_block = [&](int slot) {
    rows.load(base + slot * Layout::kBlockBytes);
    barrier_arrive_with_copies(full + 8 * slot);
  };
  for (int n = 0; n < min(kAhead, blocks); ++n) load_block(n);
  // The entries of the next turn, which may be in the next block, are asked for while a turn is worked on.
  NextEntries<kDropout> next{list, dropped, {}};
  next.ask(0);
  int next_count = window < windows ? __ldg(turns) : 0;
  int slot = 0, slot_ahead = kAhead;
  uint32_t parity = 0, parity_ahead = 1;  // of a first round nobody waits for a place
  for (int block = 0; block < blocks; ++block) {
    if (block + kAhead < blocks) {
      if (block + kAhead >= kSlots) barrier_wait(free + 8 * slot_ahead, parity_ahead);
      load_block(slot_ahead);
      if (++slot_ahead == kSlots) slot_ahead = 0, parity_ahead ^= 1;
    }
    const uint32_t place = base + slot * Layout::kBlockBytes + m * 16;
    const int count = next_count, after = min(block + 1, blocks - 1);
    if (window < windows) next_count = __ldg(turns + after);
    int at = block * kWindowBlock;
    if (count == 0) next.ask(after * kWindowBlock);
    barrier_wait(full + 8 * slot, parity);
#pragma unroll 1
    for (int turn = 0; turn < count; ++turn) {
      const uint32_t now[2] = {next.entry[0], next.entry[1]}, gone[2] = {next.gone[0], next.gone[1]};
      const uint32_t rows_at[2] = {place + (now[0] >> 16) * Layout::kBytes,
                                   place + (now[1] >> 16) * Layout::kBytes};
      at = turn + 1 < count ? at + 16 : after * kWindowBlock;
      next.ask(at);
      seen |= now[0] | now[1];
      float s[2][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < D / 32; ++n) {
          uint32_t b[4];
          load_matrices(b, rows_at[half] + n * 64);
          multiply(s[half], query[2 * n], b[0], b[1]);
          multiply(s[half], query[2 * n + 1], b[2], b[3]);
        }
      uint32_t weights[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (float& x : s[half]) x = exp2_fast(x * to_log2);
        // The bits of keys 2 t and 2 t + 1.
        const uint32_t bits =
            __byte_perm(__shfl_sync(~0u, now[half], 2 * t), __shfl_sync(~0u, now[half], 2 * t + 1), 0x5410);
        weights[2 * half] = pack_bf16(s[half][0], s[half][1]) & halves(bits << (15 - g));
        weights[2 * half + 1] = pack_bf16(s[half][2], s[half][3]) & halves(bits << (7 - g));
      }
      constexpr uint32_t kOnes = 0x3F803F80u;
      multiply(sums, weights, kOnes, kOnes);
      if constexpr (kDropout) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          weights[2 * half] &= ~halves(gone[half] << (15 - g));
          weights[2 * half + 1] &= ~halves(gone[half] << (7 - g));
        }
      }
      const uint32_t values = (lane & 8 ? rows_at[1] : rows_at[0]) + (m / 2 - m) * 16 + 2 * D;
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        uint32_t b[4];
        load_transposed(b, values + n * 32);
        multiply(out[2 * n], weights, b[0], b[1]);
        multiply(out[2 * n + 1], weights, b[2], b[3]);
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(free + 8 * slot);
    if (++slot == kSlots) slot = 0, parity ^= 1;
  }
  if (window >= windows) return;

    // Eight lanes have seen the bits of different keys.
#pragma unroll
  for (int step = 1; step < 8; step *= 2) seen |= __shfl_xor_sync(~0u, seen, step);
  auto* const head_out = reinterpret_cast<__nv_bfloat16*>(p.output.head(item, head));
  float* const lse = p.lse + static_cast<int64_t>(head_index) * queries;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + g + 8 * half;
    const bool empty = !(seen >> (g + 8 * half) & 1);
    const float sum = sums[2 * half], inverse = p.keep_scale / sum;
    bool good = sum > 0x1.0p-100f && sum < 0x1.0p100f;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const float x = out[n][2 * half] * inverse, y = out[n][2 * half + 1] * inverse;
      good = good && isfinite(x) && isfinite(y);
      if (row < queries)
        *reinterpret_cast<uint32_t*>(head_out + row * p.output.row_stride + 8 * n + 2 * t) =
            empty ? 0 : pack_bf16(x, y);
    }
    if (row < queries && t == 0) lse[row] = empty ? -INFINITY : logf(sum);
    const unsigned bad = __ballot_sync(~0u, row < queries && !empty && !good);
    if (bad == 0) continue;
    __syncwarp();
    for (int n = 0; n < 8; ++n) {
      if ((bad >> (4 * n) & 0xF) == 0) continue;
      const int again = first + n + 8 * half, column_tiles = static_cast<int>(p.shape.column_tiles());
      const auto bf16 = [](const Bf16* from) { return reinterpret_cast<const __nv_bfloat16*>(from); };
      const RowInputs<__nv_bfloat16> row_inputs{
          bf16(own + again * p.query.row_stride),
          bf16(p.key.head(item, head)),
          bf16(p.value.head(item, head)),
          p.key.row_stride,
          p.value.row_stride,
          p.scale,
          p.keep_scale,
          p.tiles + (head_index * p.shape.row_tiles() + again / 64) * column_tiles * kTileWords,
          again % 64,
          column_tiles};
      const auto is_dropped = [&](int tile, int column) {
        return kDropout && pair_dropped(p.stream_keys[head_index], again, tile * 64 + column, drop_limit);
      };
      attend_row<D>(row_inputs, is_dropped, head_out + again * p.output.row_stride, lse + again);
    }
  }
}

template <int D, int kWarps, bool kDropout>
cudaError_t forward(const WindowForwardParams& p, cudaStream_t stream) {
  auto* const kernel = window_forward<D, kWarps, kDropout>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Rows<D>::kSharedBytes);
  if (ready != cudaSuccess) return ready;
  const dim3 grid(static_cast<unsigned>((p.shape.queries + kWarps * kWindow - 1) / (kWarps * kWindow)),
                  static_cast<unsigned>(p.shape.batch * p.shape.heads));
  if (grid.x == 0 || grid.y == 0) return cudaSuccess;
  kernel<<<grid, kWarps * 32, Rows<D>::kSharedBytes, stream>>>(p, dropout_limit(p.dropout_p));
  return cudaGetLastError();
}

}  // namespace

int launch_window_forward(const WindowForwardParams& p, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  switch (p.head_dim) {
    case 32:
      return p.dropped ? forward<32, 24, true>(p, stream) : forward<32, 32, false>(p, stream);
    case 64:
      return p.dropped ? forward<64, 16, true>(p, stream) : forward<64, 16, false>(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace edgewise::kernels::cuda
