// Attention over windows (window_params.h), backward, in two passes without atomics: equations as in
// tile_backward.cuh. A warp owns the 16 "outer" tokens of a window (queries in the row pass, keys in the
// column pass) and visits only the "inner" tokens that its list names, 16 at a time, on tensor cores
// (mma.sync).
//
// What a pass reads of a token lies side by side in one row (pack_rows): two vectors of the head, the
// memberships, and of a query lse and ubar. Rows pass through shared memory in blocks of 256, each a single
// bulk copy; whichever warp is the last to leave a block asks for the one that takes its place, so no warp
// waits for another but through the data. `ldmatrix` gathers the rows of a list from there.
//
// Probes come in squares of 16 x 16 pairs, which are visited without a list when their block passes by; so
// edges do not pay for the credit of probes.
#pragma once

#include "kernels/cuda/device/bulk_copy.cuh"
#include "kernels/cuda/device/warp_products.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/tiles/bit_tiles.cuh"
#include "kernels/cuda/windows/window_entries.cuh"
#include "kernels/cuda/windows/window_params.h"

namespace edgewise::kernels::cuda {
namespace {  // each head dim is compiled by itself

constexpr float kLog2E = 1.44269504088896f;

// A token: vector a (query or key), vector b (grad_output or value), memberships, and 16 bytes with lse
// log2(e) and ubar of a query. The number of 16-byte pieces is odd: the same piece of tokens that differ
// modulo 8 lies in different banks.
template <int D, int C>
struct TokenRow {
  static constexpr int kB = 2 * D, kC = 4 * D, kValues = 4 * D + 2 * C, kBytes = kValues + 16,
                       kPieces = kBytes / 16;
  static_assert(kPieces % 2 == 1);
  static constexpr int kBlockBytes = kWindowBlock * kBytes, kFit = 216 * 1024 / kBlockBytes,
                       kStages = kFit < 4 ? kFit : 4;
};

// ---- rows of tokens ----

struct PackParams {
  int heads, tokens, rows;  // rows: tokens filled up to whole blocks
  FewEdges sparse;
  HeadTensor<const Bf16> a, b, c;
  HeadTensor<const Bf16> output;  // of queries; then `lse` is set
  const float* lse;
  uint8_t* to;
};

// A thread moves a few pieces of 16 bytes, all on their way at once: so heads that are left out cost little.
// The pieces that end a row are work of another kind and come after all others.
constexpr int kPackThreads = 256, kPackPieces = 4;
template <int D, int C>
__global__ void pack_rows(const __grid_constant__ PackParams p) {
  using Row = TokenRow<D, C>;
  constexpr int kCopied = Row::kPieces - 1;
  const int head_index = blockIdx.y, item = head_index / p.heads, head = head_index % p.heads;
  if (!p.sparse.has(head_index)) return;
  const int copied = p.rows * kCopied, first = blockIdx.x * (kPackThreads * kPackPieces) + threadIdx.x;
  const auto chunk = [&](const HeadTensor<const Bf16>& from, int row, int n) {
    return __ldg(reinterpret_cast<const uint4*>(from.head(item, head) + row * from.row_stride) + n);
  };
  uint8_t* const to = p.to + static_cast<int64_t>(head_index) * p.rows * Row::kBytes;
  const auto place = [&](int row, int piece) {
    return reinterpret_cast<uint4*>(to + static_cast<int64_t>(row) * Row::kBytes + piece * 16);
  };
  if (blockIdx.x * (kPackThreads * kPackPieces) < copied) {
    uint4 values[kPackPieces];
#pragma unroll
    for (int n = 0; n < kPackPieces; ++n) {
      const int index = first + n * kPackThreads, row = index / kCopied, piece = index % kCopied;
      const bool is_a = piece < D / 8, is_b = piece < D / 4;
      values[n] = uint4{};
      if (row < p.tokens)
        values[n] = is_a   ? chunk(p.a, row, piece)
                    : is_b ? chunk(p.b, row, piece - D / 8)
                           : chunk(p.c, row, piece - D / 4);
    }
#pragma unroll
    for (int n = 0; n < kPackPieces; ++n) {
      const int index = first + n * kPackThreads;
      if (index < copied) *place(index / kCopied, index % kCopied) = values[n];
    }
    return;
  }
  const int blocks_before = (copied + kPackThreads * kPackPieces - 1) / (kPackThreads * kPackPieces);
  for (int n = 0; n < kPackPieces; ++n) {
    const int row = first - blocks_before * (kPackThreads * kPackPieces) + n * kPackThreads;
    if (row >= p.rows) return;
    uint4 value{};
    if (row < p.tokens && p.lse) {
      float sum = 0;
#pragma unroll
      for (int m = 0; m < D / 8; ++m) {
        const uint4 o = chunk(p.output, row, m), g = chunk(p.b, row, m);
        const uint32_t left[4] = {o.x, o.y, o.z, o.w}, right[4] = {g.x, g.y, g.z, g.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          sum += __uint_as_float(left[e] << 16) * __uint_as_float(right[e] << 16);
          sum += __uint_as_float(left[e] & 0xFFFF0000u) * __uint_as_float(right[e] & 0xFFFF0000u);
        }
      }
      value.x = __float_as_uint(p.lse[static_cast<int64_t>(head_index) * p.tokens + row] * kLog2E);
      value.y = __float_as_uint(sum);
    }
    *place(row, kCopied) = value;
  }
}

// ---- the passes ----

struct WindowPassParams {
  int heads, outer, inner;  // tokens on each side
  float scale;
  FewEdges sparse;
  WindowLists lists;
  const uint16_t* dropped;  // of the lists' entries
  float keep_scale;
  const uint8_t *outer_rows, *inner_rows;
  const uint8_t* units;    // squares with probes, by outer tokens; null = none
  const uint32_t* probes;  // bit plane by queries
  const float* probe_rates;
  bool paper;
  float clip;
  const float* density_grad;
  HeadTensor<Bf16> grad_a, grad_b;  // of outer a and, in the column pass, of outer b
  HeadTensor<float> grad_c;         // of the outer side's memberships
};

// Whether the learner's credit G on edges is d itself, or shaped by options at run time.
enum class EdgeRule { kSame, kShaped };

// As many warps as registers allow.
constexpr int window_warps(int D, int C, bool columns) {
  if (D == 32) return C == 0 ? (columns ? 20 : 24) : C == 32 ? 16 : (columns ? 12 : 16);
  return columns ? 12 : 16;
}

// Counts one more arrival; the last of `count` starts anew and is told so.
__device__ bool last_to_arrive(uint32_t counter, unsigned count) {
  unsigned before;
  asm volatile("atom.acq_rel.cta.shared::cta.add.u32 %0, [%1], 1;" : "=r"(before) : "r"(counter) : "memory");
  if (before + 1 != count) return false;
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(counter), "r"(0) : "memory");
  return true;
}

// 0 where the sign of a half (0 low, 1 high) of `signs` is set, else x.
__device__ inline float zero_where(uint32_t signs, int half, float x) {
  uint32_t mask;
  if (half)
    asm("prmt.b32 %0, %1, 0, 0xBBBB;" : "=r"(mask) : "r"(signs));
  else
    asm("prmt.b32 %0, %1, 0, 0x9999;" : "=r"(mask) : "r"(signs));
  return __uint_as_float(__float_as_uint(x) & ~mask);
}

__device__ inline float2 load_two(uint32_t at) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(at));
  return x;
}

template <int D, int C, bool kColumns, EdgeRule kRule, bool kDropout>
__global__ void __launch_bounds__(window_warps(D, C, kColumns) * 32, 1)
    window_backward(const __grid_constant__ WindowPassParams p) {
  using Row = TokenRow<D, C>;
  constexpr int kWarps = window_warps(D, C, kColumns), kStages = Row::kStages;
  constexpr bool kShaped = C > 0 && kRule == EdgeRule::kShaped, kFewRegisters = C == 128 && !kColumns;
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ uint64_t full_barriers[kStages];
  __shared__ unsigned done_counters[kStages];
  const int head_index = blockIdx.y, item = head_index / p.heads, head = head_index % p.heads;
  if (!p.sparse.has(head_index)) return;
  // From one lane, so that the compiler sees that it is the same for all of a warp.
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, k = lane % 8, m = lane / 8;
  const int windows = (p.outer + kWindow - 1) / kWindow, blocks = (p.inner + kWindowBlock - 1) / kWindowBlock;
  const int window = blockIdx.x * kWarps + warp;
  const bool exists = window < windows;
  const int outer_rows = (p.outer + kWindowBlock - 1) / kWindowBlock * kWindowBlock;

  // Blocks on their way into shared memory.
  const uint32_t base = shared_address(shared), full = shared_address(full_barriers),
                 done = shared_address(done_counters);
  const uint8_t* const inner_rows =
      p.inner_rows + static_cast<int64_t>(head_index) * blocks * Row::kBlockBytes;
  const auto load_block = [&](int block, int slot) {
    barrier_expect(full + 8 * slot, Row::kBlockBytes);
    bulk_copy(base + slot * Row::kBlockBytes, inner_rows + static_cast<int64_t>(block) * Row::kBlockBytes,
              Row::kBlockBytes, full + 8 * slot);
  };
  if (threadIdx.x == 0) {
    for (int n = 0; n < kStages; ++n) barrier_init(full + 8 * n, 1), done_counters[n] = 0;
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x == 0)
    for (int n = 0; n < min(kStages, blocks); ++n) load_block(n, n);

  // The window's own tokens g and g + 8 as operands of 16 columns each.
  uint32_t own_a[D / 16][4], own_b[D / 16][4];
  const uint8_t* const own =
      p.outer_rows +
      (static_cast<int64_t>(head_index) * outer_rows + (exists ? window * kWindow : 0) + g) * Row::kBytes;
#pragma unroll
  for (int n = 0; n < D / 16; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const uint8_t* const from = own + (e & 1) * (8 * Row::kBytes) + 2 * (16 * n + 8 * (e >> 1) + 2 * t);
      own_a[n][e] = __ldg(reinterpret_cast<const unsigned*>(from));
      own_b[n][e] = __ldg(reinterpret_cast<const unsigned*>(from + Row::kB));
    }
  float row_lse[2] = {}, row_ubar[2] = {};
  if constexpr (!kColumns) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto values = *reinterpret_cast<const float2*>(own + half * (8 * Row::kBytes) + Row::kValues);
      row_lse[half] = values.x, row_ubar[half] = values.y;
    }
  }
  const float to_log2 = p.scale * kLog2E;
  [[maybe_unused]] const float density = kShaped && p.density_grad ? p.density_grad[head] : 0,
                               limit = p.clip > 0 ? p.clip : INFINITY;
  // Where the bits of tokens g and g + 8 are in an entry, as the shifts that bring them on top of a half.
  const int upper_shift = 15 - (kColumns ? window_bit_of_key(g) : g),
            lower_shift = 15 - (kColumns ? window_bit_of_key(g + 8) : g + 8);

  float grad_a[D / 8][4] = {}, grad_b[kColumns ? D / 8 : 1][4] = {}, grad_c[C > 0 ? C / 8 : 1][4] = {};

  // Scores s and u of the window with 16 inner tokens, eight to a half; a lane's rows are those it asks
  // load_matrices for: token k of each half, from piece m on.
  const auto multiply_scores = [&](const uint32_t(&at)[2], float(&s)[2][4], float(&u)[2][4]) {
#pragma unroll
    for (int n = 0; n < D / 32; ++n) {
      uint32_t a[2][4], b[2][4];
      const auto load = [&](int half) {
        load_matrices(a[half], at[half] + n * 64);
        load_matrices(b[half], at[half] + Row::kB + n * 64);
      };
      const auto add = [&](int half, int step) {
        multiply(s[half], own_a[2 * n + step], a[half][2 * step], a[half][2 * step + 1]);
        multiply(u[half], own_b[2 * n + step], b[half][2 * step], b[half][2 * step + 1]);
      };
      if constexpr (kFewRegisters) {
        load(0), add(0, 0), add(0, 1);
        load(1), add(1, 0), add(1, 1);
      } else {
        load(0), load(1);
        add(0, 0), add(1, 0), add(0, 1), add(1, 1);
      }
    }
  };
  // sum += operand * (columns kFrom .. of the 16 tokens); a lane asks for piece m / 2 of token k of half m
  // % 2.
  const auto add_product = [&](auto& sum, const uint32_t(&operand)[4], uint32_t from) {
    constexpr int kWidth = sizeof(sum) / sizeof(sum[0]) * 8;
#pragma unroll
    for (int n = 0; n < kWidth / 16; ++n) {
      uint32_t b[4];
      load_transposed(b, from + n * 32);
      multiply(sum[2 * n], operand, b[0], b[1]);
      multiply(sum[2 * n + 1], operand, b[2], b[3]);
    }
  };
  const auto turned = [&](const uint32_t(&at)[2]) { return (lane & 8 ? at[1] : at[0]) + (m / 2 - m) * 16; };

  const int64_t index = (static_cast<int64_t>(head_index) * windows + (exists ? window : 0)) * blocks;
  const uint32_t* const list = p.lists.entries + index * kWindowBlock + k;  // of token k of a half
  const uint8_t* const turns = p.lists.turns + index;
  // Which bits of tokens 2 t and 2 t + 1 of a half are dropped.
  const uint32_t* const dropped =
      kDropout ? reinterpret_cast<const uint32_t*>(p.dropped + index * kWindowBlock) + t : nullptr;
  [[maybe_unused]] const uint32_t* units = nullptr;
  if constexpr (C > 0) {
    if (p.units)
      units = reinterpret_cast<const uint32_t*>(p.units) +
              (static_cast<int64_t>(head_index) * ((p.outer + 63) / 64 * 4) + (exists ? window : 0)) * blocks;
  }
  // The entries of the next turn, which may be in the next block, are asked for while a turn is worked on.
  NextEntries<kDropout> next{list, dropped, {}};
  next.ask(0);
  int next_count = exists ? __ldg(turns) : 0;
  int slot = 0;
  uint32_t parity = 0;
  for (int block = 0; block < blocks; ++block) {
    const uint32_t place = base + slot * Row::kBlockBytes;
    const int count = next_count, after = min(block + 1, blocks - 1);
    if (exists) next_count = __ldg(turns + after);
    [[maybe_unused]] uint32_t chosen = C > 0 && units && exists ? __ldg(units + block) : 0;
    int at_entry = block * kWindowBlock;
    if (count == 0) next.ask(after * kWindowBlock);
    barrier_wait(full + 8 * slot, parity);
#pragma unroll 1
    for (int turn = 0; turn < count; ++turn) {
      const uint32_t now[2] = {next.entry[0], next.entry[1]}, gone[2] = {next.gone[0], next.gone[1]};
      const uint32_t at[2] = {place + m * 16 + (now[0] >> 16) * Row::kBytes,
                              place + m * 16 + (now[1] >> 16) * Row::kBytes};
      at_entry = turn + 1 < count ? at_entry + 16 : after * kWindowBlock;
      next.ask(at_entry);
      float s[2][4] = {}, u[2][4] = {};
      multiply_scores(at, s, u);
      uint32_t operand_d[4], operand_a[4], operand_g[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Inner tokens 2 t and 2 t + 1: their bits, and lse and ubar where they are queries.
        const uint32_t first = __shfl_sync(~0u, now[half], 2 * t),
                       second = __shfl_sync(~0u, now[half], 2 * t + 1);
        float2 values[2];
        if constexpr (kColumns) {
          values[0] = load_two(place + (first >> 16) * Row::kBytes + Row::kValues);
          values[1] = load_two(place + (second >> 16) * Row::kBytes + Row::kValues);
        }
        const uint32_t bits = __byte_perm(first, second, 0x5410),
                       masks[2] = {halves(bits << upper_shift), halves(bits << lower_shift)};
        // With dropout u counts 1 / (1 - p) for an edge that is kept, 0 for one that is not.
        [[maybe_unused]] const uint32_t gone_here[2] = {gone[half] << upper_shift, gone[half] << lower_shift};
        float a[4], d[4];
        [[maybe_unused]] float credit[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float lse = kColumns ? values[e & 1].x : row_lse[e >> 1],
                      ubar = kColumns ? values[e & 1].y : row_ubar[e >> 1];
          a[e] = exp2_fast(s[half][e] * to_log2 - lse);
          d[e] =
              a[e] * (kDropout ? fmaf(zero_where(gone_here[e >> 1], e & 1, u[half][e]), p.keep_scale, -ubar)
                               : u[half][e] - ubar);
          if constexpr (kShaped) {
            const float rule = p.paper ? d[e] * (s[half][e] * p.scale) : d[e];
            credit[e] = fminf(fmaxf(rule + density, -limit), limit);
          }
        }
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          operand_d[2 * half + e] = pack_bf16(d[2 * e], d[2 * e + 1]) & masks[e];
          if constexpr (kColumns) {
            operand_a[2 * half + e] = pack_bf16(a[2 * e], a[2 * e + 1]) & masks[e];
            if constexpr (kDropout) operand_a[2 * half + e] &= ~halves(gone_here[e]);
          }
          if constexpr (kShaped)
            operand_g[2 * half + e] = pack_bf16(credit[2 * e], credit[2 * e + 1]) & masks[e];
        }
      }
      const uint32_t from = turned(at);
      add_product(grad_a, operand_d, from);
      if constexpr (kColumns) add_product(grad_b, operand_a, from + Row::kB);
      if constexpr (C > 0) {
        if constexpr (kShaped)
          add_product(grad_c, operand_g, from + Row::kC);
        else
          add_product(grad_c, operand_d, from + Row::kC);
      }
    }
    if constexpr (C > 0) {
      // Squares with probes among these inner tokens.
#pragma unroll 1
      for (; chosen; chosen &= chosen - 1) {
        const int bit = __ffs(static_cast<int>(chosen)) - 1, tile = bit / 8, square = bit % 8;
        const int token = tile * 64 + square * 16;
        const uint32_t at[2] = {place + m * 16 + (token + k) * Row::kBytes,
                                place + m * 16 + (token + 8 + k) * Row::kBytes};
        // Which pairs are probes: masks of two packed halves each.
        uint32_t masks[4];
        const int column_tiles = ((kColumns ? p.outer : p.inner) + 63) / 64,
                  row_tiles = ((kColumns ? p.inner : p.outer) + 63) / 64;
        if constexpr (kColumns) {
          // Query 8 half + 2 t + h of the square is in word 4 (2 t + h) + g / 2, key g + 8 e at bit
          // 7 + 8 (2 half + g % 2) - (2 part + e).
          const uint32_t* const words =
              p.probes +
              ((static_cast<int64_t>(head_index) * row_tiles + block * 4 + tile) * column_tiles +
               window / 4) *
                  kTileWords +
              square * 32 + 8 * t + g / 2;
          const uint32_t first = __ldg(words), second = __ldg(words + 4);
#pragma unroll
          for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const int at_bit = 7 + 8 * (2 * half + g % 2) - (2 * (window % 4) + e);
              masks[2 * half + e] =
                  (first >> at_bit & 1 ? 0x0000FFFFu : 0) | (second >> at_bit & 1 ? 0xFFFF0000u : 0);
            }
        } else {
          const uint32_t word =
              __ldg(p.probes +
                    ((static_cast<int64_t>(head_index) * row_tiles + window / 4) * column_tiles + block * 4 +
                     tile) *
                        kTileWords +
                    window % 4 * 32 + lane);
          pair_masks(word, 2 * square, masks[0], masks[1]);
          pair_masks(word, 2 * square + 1, masks[2], masks[3]);
        }
        float s[2][4] = {}, u[2][4] = {};
        multiply_scores(at, s, u);
        const float rate = p.probe_rates[item];
        uint32_t operand[4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float2 values[2];
          if constexpr (kColumns) {
            const uint32_t own_values = place + (token + 8 * half + 2 * t) * Row::kBytes + Row::kValues;
            values[0] = load_two(own_values), values[1] = load_two(own_values + Row::kBytes);
          }
          float credit[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float lse = kColumns ? values[e & 1].x : row_lse[e >> 1],
                        ubar = kColumns ? values[e & 1].y : row_ubar[e >> 1];
            // The share of an absent pair, a / (1 + a); 2^100 stands for infinity.
            const float a = fminf(exp2_fast(s[half][e] * to_log2 - lse), 0x1.0p100f);
            credit[e] = __fdividef(a * (u[half][e] - ubar), fmaf(a, rate, rate));
          }
          operand[2 * half] = pack_bf16(credit[0], credit[1]) & masks[2 * half];
          operand[2 * half + 1] = pack_bf16(credit[2], credit[3]) & masks[2 * half + 1];
        }
        add_product(grad_c, operand, turned(at) + Row::kC);
      }
    }
    __syncwarp();
    if (lane == 0 && last_to_arrive(done + 4 * slot, kWarps) && block + kStages < blocks)
      load_block(block + kStages, slot);
    if (++slot == kStages) slot = 0, parity ^= 1;
  }
  if (!exists) return;

  const auto each = [&](auto& sum, const auto& store) {
    constexpr int kWidth = sizeof(sum) / sizeof(sum[0]) * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = window * kWindow + g + 8 * half;
      if (row >= p.outer) continue;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) store(row, 8 * n + 2 * t, sum[n][2 * half], sum[n][2 * half + 1]);
    }
  };
  const auto store_bf16 = [&](const HeadTensor<Bf16>& to, float factor) {
    Bf16* const out = to.head(item, head);
    return [=, stride = to.row_stride](int row, int column, float x, float y) {
      *reinterpret_cast<uint32_t*>(out + row * stride + column) = pack_bf16(x * factor, y * factor);
    };
  };
  each(grad_a, store_bf16(p.grad_a, p.scale));
  if constexpr (kColumns) each(grad_b, store_bf16(p.grad_b, p.keep_scale));
  if constexpr (C > 0) {
    float* const out = p.grad_c.head(item, head);
    each(grad_c, [&](int row, int column, float x, float y) {
      *reinterpret_cast<float2*>(out + row * p.grad_c.row_stride + column) = make_float2(x, y);
    });
  }
}

template <int D, int C, bool kColumns, EdgeRule kRule, bool kDropout>
cudaError_t launch_window_pass(const WindowPassParams& p, int64_t heads, cudaStream_t stream) {
  using Row = TokenRow<D, C>;
  constexpr int kWarps = window_warps(D, C, kColumns), kBytes = Row::kStages * Row::kBlockBytes;
  auto* const kernel = window_backward<D, C, kColumns, kRule, kDropout>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (ready != cudaSuccess) return ready;
  const int windows = (p.outer + kWindow - 1) / kWindow;
  const dim3 grid(static_cast<unsigned>((windows + kWarps - 1) / kWarps), static_cast<unsigned>(heads));
  kernel<<<grid, kWarps * 32, kBytes, stream>>>(p);
  return cudaGetLastError();
}

template <int D, int C>
void pack_side(const WindowBackwardParams& p, bool queries, cudaStream_t stream) {
  PackParams pack{};
  pack.heads = static_cast<int>(p.shape.heads);
  pack.tokens = static_cast<int>(queries ? p.shape.queries : p.shape.keys);
  pack.rows = static_cast<int>(WindowLists::blocks(pack.tokens) * kWindowBlock);
  pack.sparse = p.sparse;
  pack.a = queries ? p.query : p.key;
  pack.b = queries ? p.grad_output : p.value;
  pack.c = queries ? p.credit.query_membership : p.credit.key_side;
  pack.output = p.output;
  pack.lse = queries ? p.lse : nullptr;
  pack.to = queries ? p.query_rows : p.key_rows;
  const auto blocks = [](int64_t pieces) {
    return static_cast<unsigned>((pieces + kPackThreads * kPackPieces - 1) / (kPackThreads * kPackPieces));
  };
  const dim3 grid(blocks(static_cast<int64_t>(pack.rows) * (TokenRow<D, C>::kPieces - 1)) + blocks(pack.rows),
                  static_cast<unsigned>(p.shape.batch * p.shape.heads));
  pack_rows<D, C><<<grid, kPackThreads, 0, stream>>>(pack);
}

template <int D, int C, EdgeRule kRule, bool kDropout>
cudaError_t launch_window_sides(const WindowBackwardParams& p, cudaStream_t stream) {
  pack_side<D, C>(p, true, stream);
  pack_side<D, C>(p, false, stream);
  const TileCreditParams<Bf16>& credit = p.credit;
  WindowPassParams pass{};
  pass.heads = static_cast<int>(p.shape.heads);
  pass.scale = p.scale;
  pass.keep_scale = p.keep_scale;
  pass.sparse = p.sparse;
  pass.probes = credit.probes;
  pass.probe_rates = credit.probe_rates;
  pass.paper = credit.paper;
  pass.clip = credit.clip;
  pass.density_grad = credit.density_grad;
  const int64_t heads = p.shape.batch * p.shape.heads;

  pass.outer = static_cast<int>(p.shape.queries), pass.inner = static_cast<int>(p.shape.keys);
  pass.lists = p.by_queries, pass.dropped = p.dropped_by_queries;
  pass.outer_rows = p.query_rows, pass.inner_rows = p.key_rows;
  pass.units = credit.probes ? p.units_by_queries : nullptr;
  pass.grad_a = p.query_grad, pass.grad_c = credit.query_membership_grad;
  if (const cudaError_t error = launch_window_pass<D, C, false, kRule, kDropout>(pass, heads, stream);
      error != cudaSuccess)
    return error;

  pass.outer = static_cast<int>(p.shape.keys), pass.inner = static_cast<int>(p.shape.queries);
  pass.lists = p.by_keys, pass.dropped = p.dropped_by_keys;
  pass.outer_rows = p.key_rows, pass.inner_rows = p.query_rows;
  pass.units = credit.probes ? p.units_by_keys : nullptr;
  pass.grad_a = p.key_grad, pass.grad_b = p.value_grad, pass.grad_c = credit.key_side_grad;
  return launch_window_pass<D, C, true, kRule, kDropout>(pass, heads, stream);
}

template <int D, int C, EdgeRule kRule>
cudaError_t launch_window_rule(const WindowBackwardParams& p, cudaStream_t stream) {
  return p.dropped_by_queries ? launch_window_sides<D, C, kRule, true>(p, stream)
                              : launch_window_sides<D, C, kRule, false>(p, stream);
}

template <int D, int C>
int launch_windows(const WindowBackwardParams& p, Stream given) {
  const auto stream = static_cast<cudaStream_t>(given);
  if (p.shape.words() == 0) return cudaSuccess;
  if constexpr (C > 0)
    if (p.credit.paper || p.credit.clip > 0 || p.credit.density_grad)
      return launch_window_rule<D, C, EdgeRule::kShaped>(p, stream);
  return launch_window_rule<D, C, EdgeRule::kSame>(p, stream);
}

}  // namespace
}  // namespace edgewise::kernels::cuda
