// Products of fp32 numbers on tensor cores (mma.sync, tf32 operands, fp32 sums) as the tile kernels need
// them:
//   scores   S[16, 32] = A[16, D] B[32, D]^T     A: rows of a warp, B: 32 tokens in shared memory
//   outputs  O[16, W] += P[16, 32] B[32, W]      P: what the scores became, in the order they came in
// Tf32::kOnce cuts every operand to tf32's 11 bits. Tf32::kThrice writes it as high + low, both tf32, and
// adds low high + high low + high high; low low, below 2^-20 of the product, is left out.
//
// mma.sync takes k = lane % 4 and lane % 4 + 4 of eight from a lane. Sums over k may be dealt out as one
// likes if both operands agree, so that nobody exchanges anything: of the head dims a lane takes eight
// neighbours (16 bytes at a time), and of the tokens in the outputs those two whose scores it holds.
#pragma once

#include <cstdint>

#include "kernels/bit_tiles.h"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/tiles/tile_params.h"
#include "kernels/cuda/tiles/used_tiles.cuh"

namespace edgewise::kernels::cuda {
namespace {

constexpr int kHalfTile = 32;  // tokens in shared memory at a time

// Floats from row to row in shared memory: 16-byte reads of a quarter warp, two rows at four places or four
// even rows at two, meet no bank twice (head dim 16 has one conflict).
constexpr int padded_row(int width) {
  return width + 4;
}

// x for one product, which cuts off the lowest 13 bits: up by ln 2 / 2048 of itself, on average half of what
// they can hold. Nearly as good as rounding, which takes three instructions; NaN stays NaN, and a number that
// tf32 can hold stays as it is.
__device__ inline float nearly_rounded(float x) {
  return x * (1 + 0x1.62e43p-12f);
}

template <Tf32 kProducts, int kCount>
struct Operand {
  uint32_t high[kCount], low[kProducts == Tf32::kThrice ? kCount : 1];

  __device__ void set(int n, float x) {
    if constexpr (kProducts == Tf32::kThrice) {
      high[n] = __float_as_uint(x);  // of which the product takes the upper 19 bits
      low[n] = __float_as_uint(x - __uint_as_float(high[n] & 0xFFFFE000u));
    } else {
      high[n] = __float_as_uint(nearly_rounded(x));
    }
  }
  // x went through nearly_rounded() before, if it must.
  __device__ void set_prepared(int n, float x) {
    if constexpr (kProducts == Tf32::kThrice)
      set(n, x);
    else
      high[n] = __float_as_uint(x);
  }
};

// sum += a b; the first product of a sum does not read it.
__device__ inline void mma_tf32(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bool first) {
  if (first)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
  else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// sums[m][n] += a[m] b[n]; products of one sum lie apart, since each waits for the one before.
template <Tf32 kProducts, int kM, int kN>
__device__ inline void multiply(float (&sums)[kM][kN][4], const Operand<kProducts, 4> (&a)[kM],
                                const Operand<kProducts, 2> (&b)[kN], bool first) {
  if constexpr (kProducts == Tf32::kThrice) {
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int m = 0; m < kM; ++m) mma_tf32(sums[m][n], a[m].low, b[n].high, first);
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int m = 0; m < kM; ++m) mma_tf32(sums[m][n], a[m].high, b[n].low, false);
    first = false;
  }
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int m = 0; m < kM; ++m) mma_tf32(sums[m][n], a[m].high, b[n].high, first);
}

// ---- scores ----

// A lane's rows of A, lane / 4 and lane / 4 + 8 of each of kM groups of 16, in the order of the operands; in
// registers, or read again each time where they would not fit (kKept).
template <Tf32 kProducts, int D, int kM, bool kKept>
class OuterRows {
 public:
  static constexpr int kQuads = D / 16;
  // The first of the four head dims that lane t = lane % 4 has in step `quad`.
  __device__ static int dim_of(int quad, int t) {
    return D == 16 ? 4 * t : 32 * (quad / 2) + 8 * t + 4 * (quad % 2);
  }

  // Rows first .. first + 16 kM - 1 of [count, D]; those beyond `count` are 0.
  __device__ OuterRows(const float* from, int64_t row_stride, int first, int count) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const int upper = first + 16 * m + lane / 4, lower = upper + 8;
      rows_[m][0] = upper < count ? from + upper * row_stride : nullptr;
      rows_[m][1] = lower < count ? from + lower * row_stride : nullptr;
      if constexpr (kKept) {
#pragma unroll
        for (int quad = 0; quad < kQuads; ++quad) read(m, quad, kept_[m][quad]);
      }
    }
  }

  // Before each half tile: keeps the compiler from splitting what is kept once for all, into registers that
  // are not there.
  __device__ void forget_splits() {
    if constexpr (kKept && kProducts == Tf32::kThrice) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int quad = 0; quad < kQuads; ++quad)
#pragma unroll
          for (int n = 0; n < 8; ++n) asm volatile("" : "+f"(kept_[m][quad][n / 4][n % 4]));
    }
  }

  // The two operands of step `quad`.
  __device__ void operands(int m, int quad, Operand<kProducts, 4> (&to)[2]) const {
    float own[2][4];
    if constexpr (!kKept) read(m, quad, own);
#pragma unroll
    for (int n = 0; n < 8; ++n)
      to[n / 4].set_prepared(
          n % 4, kKept ? kept_[kKept ? m : 0][kKept ? quad : 0][n / 4][n % 4] : own[n / 4][n % 4]);
  }

 private:
  __device__ void read(int m, int quad, float (&to)[2][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* const row = rows_[m][half];
      const float4 x = row ? __ldg(reinterpret_cast<const float4*>(row + dim_of(quad, threadIdx.x % 4)))
                           : make_float4(0, 0, 0, 0);
      to[0][half] = prepared(x.x), to[0][2 + half] = prepared(x.y);
      to[1][half] = prepared(x.z), to[1][2 + half] = prepared(x.w);
    }
  }
  __device__ static float prepared(float x) {
    return kProducts == Tf32::kOnce ? nearly_rounded(x) : x;
  }

  float kept_[kKept ? kM : 1][kKept ? kQuads : 1][2][4];
  const float* rows_[kM][2];
};

// scores[m][j] = A B^T: element e of block j is row lane / 4 (+ 8 for e >= 2) and token 8 j + 2 (lane % 4) +
// e % 2, as in a bit tile.
template <Tf32 kProducts, int D, int kM, bool kKept>
__device__ inline void form_scores(float (&scores)[kM][4][4], const OuterRows<kProducts, D, kM, kKept>& a,
                                   const float* b) {
  using Rows = OuterRows<kProducts, D, kM, kKept>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int quad = 0; quad < Rows::kQuads; ++quad) {
    const float* const from = b + lane / 4 * padded_row(D) + Rows::dim_of(quad, lane % 4);
    float4 right[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) right[j] = *reinterpret_cast<const float4*>(from + 8 * j * padded_row(D));
    Operand<kProducts, 4> both[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m) a.operands(m, quad, both[m]);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      Operand<kProducts, 4> rows[kM];
      Operand<kProducts, 2> tokens[4];
#pragma unroll
      for (int m = 0; m < kM; ++m) rows[m] = both[m][step];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        tokens[j].set(0, step ? right[j].z : right[j].x);
        tokens[j].set(1, step ? right[j].w : right[j].y);
      }
      multiply(scores, rows, tokens, quad == 0 && step == 0);
    }
  }
}

// ---- outputs ----

// O of a lane: sums[m][n] is block n of eight columns, in an order of our own (store_rows knows it).
template <int W, int kM>
struct OutputSums {
  static constexpr int kBlocks = W / 8, kPerRead = kBlocks < 4 ? kBlocks : 4;
  float sums[kM][kBlocks][4];

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kBlocks; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[m][n][e] = 0;
  }
};

// O += P B. Tensor cores cut a sum off where they add to it; over the thousands of additions of a long row
// that is 1e-5 of it, so with Tf32::kThrice they add up 32 tokens and the rest is done by plain additions.
template <Tf32 kProducts, int W, int kM>
__device__ inline void add_outputs(OutputSums<W, kM>& out, const float (&weights)[kM][4][4], const float* b) {
  constexpr int kPerRead = OutputSums<W, kM>::kPerRead;
  const int lane = threadIdx.x % 32;
  const float* const from = b + 2 * (lane % 4) * padded_row(W) + kPerRead * (lane / 4);
#pragma unroll
  for (int first = 0; first < W / 8; first += kPerRead) {
    float part[kM][kPerRead][4];
    if constexpr (kProducts == Tf32::kOnce) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kPerRead; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) part[m][n][e] = out.sums[m][first + n][e];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float pair[2][kPerRead];
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        const float* const row = from + (8 * j + which) * padded_row(W) + 8 * first;
        if constexpr (kPerRead == 4) {
          const float4 x = *reinterpret_cast<const float4*>(row);
          pair[which][0] = x.x, pair[which][1] = x.y, pair[which][2] = x.z, pair[which][3] = x.w;
        } else {
          const float2 x = *reinterpret_cast<const float2*>(row);
          pair[which][0] = x.x, pair[which][1] = x.y;
        }
      }
      Operand<kProducts, 4> rows[kM];
      Operand<kProducts, 2> columns[kPerRead];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        rows[m].set(0, weights[m][j][0]);
        rows[m].set(1, weights[m][j][2]);
        rows[m].set(2, weights[m][j][1]);
        rows[m].set(3, weights[m][j][3]);
      }
#pragma unroll
      for (int n = 0; n < kPerRead; ++n) columns[n].set(0, pair[0][n]), columns[n].set(1, pair[1][n]);
      multiply(part, rows, columns, kProducts == Tf32::kThrice && j == 0);
    }
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kPerRead; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& sum = out.sums[m][first + n][e];
          sum = kProducts == Tf32::kThrice ? sum + part[m][n][e] : part[m][n][e];
        }
  }
}

// Writes row lane / 4 + 8 half of group m times `factor`: this lane's neighbouring columns of it.
template <int W, int kM>
__device__ inline void store_row(const OutputSums<W, kM>& out, int m, int half, float factor, float* row) {
  constexpr int kPerRead = OutputSums<W, kM>::kPerRead;
  float* const to = row + 2 * kPerRead * (threadIdx.x % 4);
#pragma unroll
  for (int first = 0; first < W / 8; first += kPerRead) {
    float x[2 * kPerRead];
#pragma unroll
    for (int n = 0; n < kPerRead; ++n) {
      x[n] = out.sums[m][first + n][2 * half] * factor;
      x[kPerRead + n] = out.sums[m][first + n][2 * half + 1] * factor;
    }
#pragma unroll
    for (int n = 0; n < 2 * kPerRead; n += 4)
      *reinterpret_cast<float4*>(to + 8 * first + n) = make_float4(x[n], x[n + 1], x[n + 2], x[n + 3]);
  }
}

// ---- tokens into shared memory ----

// The inner tokens of a block of threads, half a tile at a time: all of them, or those of the tiles that hold
// an edge.
struct HalfTiles {
  const uint16_t* listed;  // null = all
  int visits, halves;      // of tiles; of half tiles

  // `count` inner tokens; the block has `strips` tiles of outer tokens from number `outer` on.
  __device__ HalfTiles(const UsedTiles& used, int head_index, int outer, int strips, int outer_tiles,
                       int count, uint16_t* list)
      : listed(nullptr), visits((count + 63) / 64), halves((count + kHalfTile - 1) / kHalfTile) {
    if (!used.flags || visits > kMostListedTiles) return;
    visits = list_used_tiles(used, head_index, outer, strips, outer_tiles, visits, list);
    halves = 2 * visits;
    listed = list;
  }
  __device__ int tile(int visit) const { return listed ? listed[visit] : visit; }
  __device__ int first_token(int half) const { return tile(half / 2) * 64 + half % 2 * kHalfTile; }
};

// Rows first .. first + 31 of [count, W] to rows of padded_row(W); those beyond `count` become 0.
template <int W, int kThreads>
__device__ inline void copy_half_tile(float* to, const float* from, int64_t row_stride, int first,
                                      int count) {
  constexpr int kChunksPerRow = W / 4, kChunks = kHalfTile * kChunksPerRow;
  static_assert(kChunks % kThreads == 0);
#pragma unroll
  for (int turn = 0; turn < kChunks / kThreads; ++turn) {
    const int n = turn * kThreads + static_cast<int>(threadIdx.x), row = n / kChunksPerRow,
              chunk = n % kChunksPerRow;
    const bool valid = first + row < count;
    const float* const source = from + (valid ? (first + row) * row_stride : 0) + chunk * 4;
    copy_chunk(shared_address(to + row * padded_row(W) + chunk * 4), source, valid);
  }
}
// Element e of block j of a word whose half was moved to the front (word << 4 for the second half).
__device__ inline bool pair_bit(uint32_t word, int j, int e) {
  return word >> (7 + 8 * e - j) & 1;
}

}  // namespace
}  // namespace edgewise::kernels::cuda
