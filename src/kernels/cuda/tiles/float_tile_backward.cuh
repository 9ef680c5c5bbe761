// Attention over bit tiles in fp32, backward: the equations and the two passes of tile_backward.cuh, with
// products of tf32 operands (tf32_products.cuh). A warp owns 16 outer tokens, a block of four warps 64; half
// tiles of inner tokens pass by. What the learner asks for (probes, rules, fixed and discarded pairs) is
// decided at run time: beside these products a branch costs nothing.
#pragma once

#include <type_traits>

#include "kernels/cuda/device/tf32_products.cuh"
#include "kernels/cuda/tiles/tile_pass.cuh"

namespace edgewise::kernels::cuda {
namespace {  // each head dim is compiled by itself

constexpr int kThreads = 128, kRows = 64;

// The sums of a launch; where registers do not hold all of a pass, those of the memberships have their own.
enum Sums : int { kAttention = 1, kMemberships = 2 };

template <Tf32 kTf32, int kHeadDim, int kClusters, bool kByColumns, int kSums>
struct Pass {
  static constexpr Tf32 kProducts = kTf32;
  static constexpr int D = kHeadDim, C = kClusters;
  static constexpr bool kColumns = kByColumns, kHasA = kSums & kAttention, kHasB = kHasA && kByColumns;
  static_assert((C > 0) == ((kSums & kMemberships) != 0), "clusters and their sum come together");
  // The outer tokens that stay in registers; others are read again for each half tile.
  static constexpr bool kKeptB = D <= 32 || (D == 64 && !(kHasB && C > 0)), kKeptA = D <= 64 || !kHasB;
  static constexpr int kStages = D <= 64 ? 3 : 2;
  // The place of half a tile, in floats: inner_a, inner_b, inner_c, lse and ubar.
  static constexpr int kSide = kHalfTile * padded_row(D), kB = kSide, kC = 2 * kSide,
                       kValues = kC + (C > 0 ? kHalfTile * padded_row(C) : 0),
                       kPlace = kValues + 2 * kHalfTile;
  static constexpr int kBytes = kStages * kPlace * 4;
  static constexpr int kBlocks = D <= 32 && (C == 0 || (C == 32 && !kHasB)) ? 3 : 2;  // an SM
};

// The bits of a lane's pairs in one tile.
struct LaneBits {
  uint32_t edges = 0, dropped = 0, probes = 0, fixed = 0, discarded = 0;
};

template <typename Pass>
__global__ void __launch_bounds__(kThreads, Pass::kBlocks)
    float_tile_backward(const __grid_constant__ PassParams<float> p) {
  constexpr int D = Pass::D, C = Pass::C, kStages = Pass::kStages;
  constexpr bool kColumns = Pass::kColumns;
  extern __shared__ float4 raw[];
  float* const places = reinterpret_cast<float*>(raw);
  __shared__ uint16_t list[kMostListedTiles];

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head_index = blockIdx.y, item = head_index / p.heads, head = head_index % p.heads;
  if (p.left_out.has(head_index)) return;
  const int outer_count = p.outer;
  const int inner_count = p.inner;
  const int outer_tile = blockIdx.x, first_row = outer_tile * kRows + warp * 16;
  const int inner_tiles = (p.inner + 63) / 64;
  const int64_t strip =
      (static_cast<int64_t>(head_index) * gridDim.x + outer_tile) * inner_tiles * kTileWords + warp * 32 +
      lane;
  const float* const lse2 = p.row_values + static_cast<int64_t>(head_index) * (kColumns ? p.inner : p.outer);
  const float* const ubar = lse2 + p.query_count;
  const float *const inner_a = p.inner_a.head(item, head), *const inner_b = p.inner_b.head(item, head),
                     *const inner_c = C > 0 ? p.inner_c.head(item, head) : nullptr;

  // Discarded pairs may lie in tiles without edges.
  const HalfTiles walk(p.discarded || p.probes ? UsedTiles() : p.used, head_index, outer_tile, 1, gridDim.x,
                       outer_tile * kRows < outer_count ? inner_count : 0, list);
  const auto load_words = [&](int visit) {
    LaneBits words;
    if (visit >= walk.visits) return words;
    const int64_t at = strip + static_cast<int64_t>(walk.tile(visit)) * kTileWords;
    words.edges = __ldg(p.tiles + at);
    if (p.dropped) words.dropped = __ldg(p.dropped + at);
    if constexpr (C > 0) {
      if (p.probes) words.probes = __ldg(p.probes + at);
      if (p.fixed) words.fixed = __ldg(p.fixed + at);
      if (p.discarded) words.discarded = __ldg(p.discarded + at);
    }
    return words;
  };
  const auto load_half = [&](int half) {
    if (half < walk.halves) {
      float* const to = places + half % kStages * Pass::kPlace;
      const int first = walk.first_token(half);
      copy_half_tile<D, kThreads>(to, inner_a, p.inner_a.row_stride, first, inner_count);
      copy_half_tile<D, kThreads>(to + Pass::kB, inner_b, p.inner_b.row_stride, first, inner_count);
      if constexpr (C > 0)
        copy_half_tile<C, kThreads>(to + Pass::kC, inner_c, p.inner_c.row_stride, first, inner_count);
      if constexpr (kColumns) {
        if (threadIdx.x < 2 * kHalfTile) {
          const int token = first + static_cast<int>(threadIdx.x) % kHalfTile;
          const bool valid = token < inner_count;
          asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(
                           shared_address(to + Pass::kValues + threadIdx.x)),
                       "l"((threadIdx.x < kHalfTile ? lse2 : ubar) + (valid ? token : 0)), "r"(valid ? 4 : 0)
                       : "memory");
        }
      }
    }
    copies_commit();
  };
#pragma unroll
  for (int half = 0; half < kStages - 1; ++half) load_half(half);
  LaneBits words, next_words = load_words(0);

  OuterRows<Pass::kProducts, D, 1, Pass::kKeptA> outer_a(p.outer_a.head(item, head), p.outer_a.row_stride,
                                                         first_row, outer_count);
  OuterRows<Pass::kProducts, D, 1, Pass::kKeptB> outer_b(p.outer_b.head(item, head), p.outer_b.row_stride,
                                                         first_row, outer_count);
  // In the row pass a lane's two rows have their own lse and ubar.
  float row_lse[2] = {}, row_ubar[2] = {};
  if constexpr (!kColumns) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + lane / 4 + 8 * half;
      if (row < outer_count) row_lse[half] = lse2[row], row_ubar[half] = ubar[row];
    }
  }
  const float to_log2 = p.scale * kLog2E;
  const float density = C > 0 && p.density_grad ? p.density_grad[head] : 0;
  const float limit = p.clip > 0 ? p.clip : INFINITY;
  const float rate = C > 0 && p.probes ? p.probe_rates[item] : 1;
  const bool shaped = p.paper || p.clip > 0 || p.density_grad || p.fixed || p.discarded;
  const auto clipped = [&](float g) { return fminf(fmaxf(g, -limit), limit); };

  OutputSums<(Pass::kHasA ? D : 16), 1> grad_a;
  OutputSums<(Pass::kHasB ? D : 16), 1> grad_b;
  OutputSums<(C > 0 ? C : 16), 1> grad_c;
  grad_a.clear(), grad_b.clear(), grad_c.clear();
  for (int half = 0; half < walk.halves; ++half) {
    if (half % 2 == 0) {
      words = next_words;
      next_words = load_words(half / 2 + 1);
    }
    copies_wait<kStages - 2>();
    __syncthreads();  // this half has arrived for everyone, and everyone is done with the one before
    load_half(half + kStages - 1);
    const float* const place = places + half % kStages * Pass::kPlace;

    // s, then a of the edges that dropout keeps, over 1 - p; u, then d of the edges; the credit.
    float scores[1][4][4], products[1][4][4];
    [[maybe_unused]] float credits[1][4][4];
    outer_a.forget_splits(), outer_b.forget_splits();
    form_scores<Pass::kProducts>(scores, outer_a, place);
    form_scores<Pass::kProducts>(products, outer_b, place + Pass::kB);
    const int shift = half % 2 * 4;
    // With a credit of its own, or with credit d.
    const auto weigh = [&](auto own_credit) {
      constexpr bool kOwnCredit = C > 0 && decltype(own_credit)::value;
      const uint32_t edges = words.edges << shift, dropped = words.dropped << shift;
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float* const values = place + Pass::kValues + 8 * j + 2 * (lane % 4) + (e & 1);
          const float lse_here = kColumns ? values[0] : row_lse[e >> 1],
                      ubar_here = kColumns ? values[kHalfTile] : row_ubar[e >> 1];
          const bool edge = pair_bit(edges, j, e);
          const float s = scores[0][j][e], u = products[0][j][e];
          const float a = exp2_fast(fmaf(s, to_log2, -lse_here)), of_edge = edge ? a : 0;
          float kept = of_edge;
          if (p.dropped) kept = pair_bit(dropped, j, e) ? 0 : of_edge * p.keep_scale;
          const float d = edge ? fmaf(kept, u, -of_edge * ubar_here) : 0;
          scores[0][j][e] = kept;
          products[0][j][e] = d;
          if constexpr (C > 0) credits[0][j][e] = d;
          if constexpr (kOwnCredit) {
            const float present = clipped((p.paper ? d * s * p.scale : d) + density);
            float g = pair_bit(edges & ~(words.fixed << shift), j, e) ? present : 0;
            if (pair_bit(words.discarded << shift, j, e)) g = clipped(density);
            const float share = a > 0x1.0p100f ? 0x1.0p100f : a,  // stands for infinity
                probe = __fdividef(share * (u - ubar_here), fmaf(share, rate, rate));
            credits[0][j][e] = pair_bit(words.probes << shift, j, e) ? probe : g;
          }
        }
    };
    // Probes in squares are absent from most tiles.
    if (C > 0 && (shaped || __any_sync(~0u, words.probes != 0)))
      weigh(std::true_type());
    else
      weigh(std::false_type());
    if constexpr (Pass::kHasA) add_outputs<Pass::kProducts>(grad_a, products, place);
    if constexpr (Pass::kHasB) add_outputs<Pass::kProducts>(grad_b, scores, place + Pass::kB);
    if constexpr (C > 0) add_outputs<Pass::kProducts>(grad_c, credits, place + Pass::kC);
  }
  copies_wait<0>();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = first_row + lane / 4 + 8 * half;
    if (row >= p.outer) continue;
    if constexpr (Pass::kHasA)
      store_row(grad_a, 0, half, p.scale, p.grad_a.head(item, head) + row * p.grad_a.row_stride);
    if constexpr (Pass::kHasB)
      store_row(grad_b, 0, half, 1, p.grad_b.head(item, head) + row * p.grad_b.row_stride);
    if constexpr (C > 0) store_row(grad_c, 0, half, 1, p.grad_c.head(item, head) + row * p.grad_c.row_stride);
  }
}

template <typename Pass>
cudaError_t launch_pass(const PassParams<float>& params, cudaStream_t stream) {
  auto* const kernel = float_tile_backward<Pass>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Pass::kBytes);
  if (ready != cudaSuccess) return ready;
  const dim3 grid((params.outer + kRows - 1) / kRows, params.batch * params.heads);
  if (grid.x == 0 || grid.y == 0) return cudaSuccess;
  kernel<<<grid, kThreads, Pass::kBytes, stream>>>(params);
  return cudaGetLastError();
}

// One side, in as few launches as registers allow.
template <Tf32 kProducts, int D, int C, bool kColumns>
cudaError_t launch_side(const PassParams<float>& pass, cudaStream_t stream) {
  if constexpr (C == 0) {
    return launch_pass<Pass<kProducts, D, 0, kColumns, kAttention>>(pass, stream);
  } else if constexpr (D <= 32 || (D == 64 && C <= 32)) {
    return launch_pass<Pass<kProducts, D, C, kColumns, kAttention | kMemberships>>(pass, stream);
  } else {
    if (const cudaError_t error = launch_side<kProducts, D, 0, kColumns>(pass, stream); error != cudaSuccess)
      return error;
    return launch_pass<Pass<kProducts, D, C, kColumns, kMemberships>>(pass, stream);
  }
}

template <Tf32 kProducts, int D, int C>
cudaError_t launch_both(const TileBackwardParams<float>& p, cudaStream_t stream) {
  launch_row_values<D>(p, stream);
  if (const cudaError_t error = launch_side<kProducts, D, C, false>(row_pass(p), stream);
      error != cudaSuccess)
    return error;
  return launch_side<kProducts, D, C, true>(column_pass(p), stream);
}

template <Tf32 kProducts, int D>
cudaError_t launch_clusters(const TileBackwardParams<float>& p, cudaStream_t stream) {
  switch (p.credit.clusters) {
    case 0:
      return launch_both<kProducts, D, 0>(p, stream);
    case 32:
      return launch_both<kProducts, D, 32>(p, stream);
    case 128:
      return launch_both<kProducts, D, 128>(p, stream);
  }
  return cudaErrorInvalidValue;
}

template <int D>
cudaError_t launch_products(const TileBackwardParams<float>& p, Tf32 products, cudaStream_t stream) {
  return products == Tf32::kOnce ? launch_clusters<Tf32::kOnce, D>(p, stream)
                                 : launch_clusters<Tf32::kThrice, D>(p, stream);
}

}  // namespace
}  // namespace edgewise::kernels::cuda
