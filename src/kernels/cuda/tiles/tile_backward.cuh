// Attention over bit tiles, backward, in two passes without atomics: queries own dq and the gradient of their
// memberships, keys own dk, dv and theirs. With a_ij = M_ij exp(s_ij - lse_i), u = do v^T and d = a (u -
// ubar):
//   row pass     dq = scale d k,      d(query_membership) = G key_side
//   column pass  dk = scale d^T q,  dv = a^T do,  d(key_side) = G^T query_membership
// G is the learner's credit (TileCreditParams). Both passes are one kernel: "outer" tokens (64 to a
// warpgroup, 128 to a block) stay, tiles of 64 "inner" tokens pass by; in the column pass the scores come out
// transposed and so do the bits.
//
// While the tensor cores form the outputs of one tile, the elementwise work of the next is done.
#pragma once

#include <type_traits>

#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/tiles/bit_tiles.cuh"
#include "kernels/cuda/tiles/tile_pass.cuh"
#include "kernels/cuda/tiles/used_tiles.cuh"

namespace edgewise::kernels::cuda {
namespace {  // each head dim is compiled by itself

constexpr int kStages = 3;

__device__ const __nv_bfloat16* bf16(const Bf16* pointer) {
  return reinterpret_cast<const __nv_bfloat16*>(pointer);
}

__device__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The shares a / (1 + a) of a warp's probes: there are none, all a are small, or any.
enum class Shares { kNone, kSmall, kAny };

// How the learner's credit G follows from d.
enum Credit : int {
  kSame = 0,     // G = d
  kProbed = 1,   // and probe edges have theirs
  kDropped = 4,  // beside the credit: dropout on the weights
  kListed = 8,   // and: only the tiles of a list
  kShaped = 2,   // G on present edges is d s, clipped, moved by the density's gradient or none, or discarded
                 // pairs have theirs (options at run time)
};

// The sums of a pass: where registers do not hold all of them, each has a launch of its own.
enum Sums : int { kSumA = 1, kSumB = 2, kSumC = 4 };

// What a pass is built for: head dim, clusters (0 without kSumC), side, credit, sums. Each warpgroup owns 64
// outer tokens; as many as registers allow.
template <int kHeadDim, int kClusters, bool kByColumns, int kCreditFlags, int kSums>
struct Pass {
  static constexpr int D = kHeadDim, C = kClusters;
  static constexpr bool kHasA = kSums & kSumA, kHasB = kByColumns && (kSums & kSumB);
  static_assert((C > 0) == ((kSums & kSumC) != 0), "clusters and their sum come together");
  static constexpr bool kColumns = kByColumns, kProbes = C > 0 && (kCreditFlags & kProbed),
                        kShape = C > 0 && (kCreditFlags & kShaped);
  // A probe's share as a polynomial where all of a tile's are small: measured to pay with 128 clusters, not
  // with 32.
  static constexpr bool kSmallShares = kProbes && C >= 128;
  static constexpr bool kOwnCredit = kProbes || kShape, kDropout = kCreditFlags & kDropped,
                        kList = kCreditFlags & kListed;
  // Accumulators and operands a thread keeps.
  static constexpr bool kNeedsD = kHasA || (C > 0 && !kOwnCredit), kNeedsU = kHasA || C > 0;
  static constexpr int kRegisters = (kNeedsU ? 64 : 32) + (kNeedsD ? 16 : 0) + (kHasB ? 16 : 0) +
                                    (kOwnCredit ? 16 : 0) + D / 2 * (kHasA + kHasB) + C / 2;
  static constexpr int kGroups = kRegisters <= 136 ? 3 : 2;
  static constexpr int kRows = 64 * kGroups, kThreads = 128 * kGroups;
  static constexpr int kOuterBytes = kRows * D * 2;  // each of outer_a, outer_b
  // The place of a tile: inner_a, inner_b, inner_c, lse and ubar of 64 tokens (padded to the alignment), the
  // bits of its edges, its probes and its dropped edges for the warpgroups.
  static constexpr int kInnerBytes = 64 * D * 2, kWordBytes = kGroups * 512;
  static constexpr int kB = kInnerBytes, kC = 2 * kInnerBytes, kValues = kC + 64 * C * 2,
                       kEdges = kValues + 1024, kProbeBits = kEdges + kWordBytes,
                       kDroppedBits = kProbeBits + kWordBytes,
                       kPlaceBytes = (kDroppedBits + kWordBytes + 1023) / 1024 * 1024;
  // A stage is a few tiles, as many as fit: the warpgroups of a block meet once a stage, and in between one
  // may run ahead of another.
  static constexpr int kTiles = 2 * kOuterBytes + kStages * 2 * kPlaceBytes + 1024 <= 227 * 1024 ? 2 : 1;
  static constexpr int kPlaces = kStages * kTiles;
  static constexpr int kBytes = 2 * kOuterBytes + kPlaces * kPlaceBytes + 1024;
};

// Writes an accumulator [64, width] of this warpgroup.
template <int kWidth, typename Store>
__device__ void each_output(const float (&sum)[kWidth / 2], const Store& store) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
      store(warp * 16 + lane / 4 + 8 * half, 8 * n + 2 * (lane % 4), sum[4 * n + 2 * half],
            sum[4 * n + 2 * half + 1]);
}

__device__ bool has_bit(uint32_t word, int j, int e) {
  return word >> (7 + 8 * e - j) & 1;
}

template <typename Pass>
__global__ void __launch_bounds__(Pass::kThreads, 1)
    tile_backward(const __grid_constant__ PassParams<Bf16> p) {
  constexpr int D = Pass::D, C = Pass::C, kThreads = Pass::kThreads, kRows = Pass::kRows;
  constexpr bool kColumns = Pass::kColumns;
  extern __shared__ uint8_t raw[];
  constexpr int kTiles = Pass::kTiles;
  const uint32_t outer_a = (shared_address(raw) + 1023) & ~1023u, outer_b = outer_a + Pass::kOuterBytes;
  const uint32_t places = outer_b + Pass::kOuterBytes,
                 places_end = places + Pass::kPlaces * Pass::kPlaceBytes;
  const auto after = [&](uint32_t place) {
    return place + Pass::kPlaceBytes == places_end ? places : place + Pass::kPlaceBytes;
  };

  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int head_index = blockIdx.y, item = head_index / p.heads, head = head_index % p.heads;
  if (p.left_out.has(head_index)) return;
  const int outer_count = p.outer;
  const int inner_count = p.inner;
  const int first = blockIdx.x * kRows, outer_tile = blockIdx.x * Pass::kGroups + group;
  const int outer_tiles = (p.outer + 63) / 64, inner_tiles = (p.inner + 63) / 64;
  const int used_tiles = first < outer_count ? (inner_count + 63) / 64 : 0;
  const bool has_rows = outer_tile < outer_tiles;
  const int64_t strip = (static_cast<int64_t>(head_index) * outer_tiles + (has_rows ? outer_tile : 0)) *
                        inner_tiles * kTileWords;
  const float* const lse2 = p.row_values + static_cast<int64_t>(head_index) * (kColumns ? p.inner : p.outer);
  const float* const ubar = lse2 + p.query_count;

  TileStream<D, kThreads> a_on(bf16(p.inner_a.head(item, head)), p.inner_a.row_stride),
      b_on(bf16(p.inner_b.head(item, head)), p.inner_b.row_stride);
  TileStream<(C > 0 ? C : 64), kThreads> c_on(C > 0 ? bf16(p.inner_c.head(item, head)) : nullptr,
                                              C > 0 ? p.inner_c.row_stride : 0);
  // Of the 128 threads that copy lse and ubar, and of the 8 lanes that copy words for their warp.
  const float* values_on = (threadIdx.x < 64 ? lse2 : ubar) + threadIdx.x % 64;
  int64_t words_on = strip + warp * 32 + lane * 4;
  int tiles_on = 0;
  uint32_t to = places;
  __shared__ uint16_t listed[Pass::kList ? kMostListedTiles : 1];
  const int visits = Pass::kList && used_tiles > 0
                         ? list_used_tiles(p.used, head_index, blockIdx.x * Pass::kGroups, Pass::kGroups,
                                           outer_tiles, used_tiles, listed)
                         : used_tiles;
  const auto load_stage = [&] {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int tile = !Pass::kList ? tiles_on : tiles_on < visits ? listed[tiles_on] : used_tiles;
      const int count = inner_count - tile * 64;
      if constexpr (Pass::kList) {
        a_on.load_at(to, tile, count);
        b_on.load_at(to + Pass::kB, tile, count);
        if constexpr (C > 0) c_on.load_at(to + Pass::kC, tile, count);
        words_on = strip + warp * 32 + lane * 4 + (tile < used_tiles ? tile * kTileWords : 0);
        values_on = (threadIdx.x < 64 ? lse2 : ubar) + threadIdx.x % 64 + tile * 64;
      } else {
        a_on.load(to, count);
        b_on.load(to + Pass::kB, count);
        if constexpr (C > 0) c_on.load(to + Pass::kC, count);
      }
      if constexpr (kColumns) {
        if (threadIdx.x < 128)
          asm volatile(
              "cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to + Pass::kValues + threadIdx.x * 4),
              "l"(values_on), "r"(static_cast<int>(threadIdx.x % 64) < count ? 4 : 0)
              : "memory");
        values_on += 64;
      }
      if (lane < 8) {
        const uint32_t at = (threadIdx.x / 32 * 32 + lane * 4) * 4;
        const bool valid = has_rows && tile < used_tiles;
        copy_chunk(to + Pass::kEdges + at, p.tiles + words_on, valid);
        if constexpr (Pass::kProbes) copy_chunk(to + Pass::kProbeBits + at, p.probes + words_on, valid);
        if constexpr (Pass::kDropout) copy_chunk(to + Pass::kDroppedBits + at, p.dropped + words_on, valid);
      }
      ++tiles_on;
      words_on += kTileWords;
      to = after(to);
    }
    copies_commit();
  };
  if (used_tiles > 0) {
    copy_tile<D, kRows, kThreads>(outer_a, bf16(p.outer_a.head(item, head)), p.outer_a.row_stride, first,
                                  outer_count);
    copy_tile<D, kRows, kThreads>(outer_b, bf16(p.outer_b.head(item, head)), p.outer_b.row_stride, first,
                                  outer_count);
    load_stage();
  }

  // In the row pass a lane's two rows have their own lse and ubar.
  float row_lse[2] = {}, row_ubar[2] = {};
  if constexpr (!kColumns) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = outer_tile * 64 + warp * 16 + lane / 4 + 8 * half;
      if (row < outer_count) row_lse[half] = lse2[row], row_ubar[half] = ubar[row];
    }
  }
  const float to_log2 = p.scale * kLog2E;
  const float density = Pass::kShape && p.density_grad ? p.density_grad[head] : 0;
  const float limit = p.clip > 0 ? p.clip : INFINITY;
  const float rate = Pass::kProbes ? p.probe_rates[item] : 1, per_rate = 1 / rate;

  // The planes that few learners have are read past shared memory, while the weights are computed.
  [[maybe_unused]] uint32_t fixed_word = 0, discarded_word = 0;
  [[maybe_unused]] int weighed = 0;

  float scores[32], products[32];  // s, then a; u, then d
  float grad_a[Pass::kHasA ? D / 2 : 1], grad_b[Pass::kHasB ? D / 2 : 1], grad_c[C > 0 ? C / 2 : 1];
  uint32_t operand_d[Pass::kNeedsD || Pass::kOwnCredit ? 16 : 1], operand_a[Pass::kHasB ? 16 : 1],
      operand_g[Pass::kOwnCredit ? 16 : 1];
#pragma unroll
  for (float& x : grad_a) x = 0;
#pragma unroll
  for (float& x : grad_b) x = 0;
#pragma unroll
  for (float& x : grad_c) x = 0;

  const auto multiply_scores = [&](uint32_t place) {
    const uint32_t offset = group * 64 * TileLayout<D>::kRowBytes;
#pragma unroll
    for (int step = 0; step < D / 16; ++step)
      score_product(scores, along_row<D, kRows>(outer_a + offset, step), along_row<D, 64>(place, step),
                    step > 0);
    if constexpr (Pass::kNeedsU) {
#pragma unroll
      for (int step = 0; step < D / 16; ++step)
        score_product(products, along_row<D, kRows>(outer_b + offset, step),
                      along_row<D, 64>(place + Pass::kB, step), step > 0);
    }
    products_commit();
  };
  // scores <- a, products <- d. For an absent pair a may pass 1 (a probe's share is a / (1 + a)); 2^100
  // stands for infinity. With dropout, u counts 1 / (1 - p) for an edge that is kept, 0 for one that is not;
  // a probe has no dropout. Returns what the probes of this warp's 16 x 64 pairs need: nothing where there
  // are none, which is the rule when they come in squares.
  const auto weigh = [&](uint32_t place) {
    const uint32_t edge_word = Pass::kDropout && Pass::kProbes ? own_word(place + Pass::kEdges) : 0;
    const uint32_t dropped_word = Pass::kDropout ? own_word(place + Pass::kDroppedBits) : 0;
    const uint32_t values = place + Pass::kValues + 2 * (lane % 4) * 4;
    const auto two_values = [&](uint32_t at, float(&to)[2]) {
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(at));
    };
    if constexpr (Pass::kShape) {
      const bool there = has_rows && weighed < visits;
      const int tile = Pass::kList && there ? listed[weighed] : weighed;
      const int64_t at = strip + static_cast<int64_t>(tile) * kTileWords + warp * 32 + lane;
      ++weighed;
      fixed_word = there && p.fixed ? __ldg(p.fixed + at) : 0;
      discarded_word = there && p.discarded ? __ldg(p.discarded + at) : 0;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float lse_here[2];
      if constexpr (kColumns) two_values(values + 32 * j, lse_here);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[4 * j + e] =
            exp2_fast(scores[4 * j + e] * to_log2 - (kColumns ? lse_here[e & 1] : row_lse[e >> 1]));
    }
    Shares shares = Shares::kNone;
    if (Pass::kProbes && __any_sync(~0u, own_word(place + Pass::kProbeBits) != 0)) {
      shares = Shares::kAny;
      if constexpr (Pass::kSmallShares) {  // as integers: none is negative, and NaN is the largest
        uint32_t largest = 0;
#pragma unroll
        for (int n = 0; n < 32; n += 2)
          largest = __vimax3_u32(largest, __float_as_uint(scores[n]), __float_as_uint(scores[n + 1]));
        if (!__any_sync(~0u, largest > __float_as_uint(0x1.0p-4f))) shares = Shares::kSmall;
      }
      if (shares == Shares::kAny) {
#pragma unroll
        for (float& a : scores) a = fminf(a, 0x1.0p100f);
      }
    }
    if constexpr (Pass::kNeedsU) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float ubar_here[2];
        if constexpr (kColumns) two_values(values + 32 * j + 256, ubar_here);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float value = products[4 * j + e];
          if constexpr (Pass::kDropout) {
            const float scale = Pass::kProbes && !has_bit(edge_word, j, e) ? 1 : p.keep_scale;
            value = has_bit(dropped_word, j, e) ? 0 : value * scale;
          }
          products[4 * j + e] =
              scores[4 * j + e] * (value - (kColumns ? ubar_here[e & 1] : row_ubar[e >> 1]));
        }
      }
    }
    return shares;
  };
  const auto credit_of = [&](float a, float d, float l) {
    float g = d;
    if (p.paper) g *= fmaxf(__log2f(a) + l, -1e30f) * kLn2;  // d s
    return fminf(fmaxf(g + density, -limit), limit);
  };
  const float only_density = fminf(fmaxf(density, -limit), limit);
  [[maybe_unused]] const uint32_t discarded_credit = pack_bf16(only_density, only_density);
  // The operands of the output products, after the last ones have been read.
  const auto pack_edges = [&](uint32_t place) {
    const uint32_t word = own_word(place + Pass::kEdges);
    [[maybe_unused]] const uint32_t dropped_word =
        Pass::kDropout && Pass::kHasB ? own_word(place + Pass::kDroppedBits) : 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      uint32_t upper, lower;
      pair_masks(word, j, upper, lower);
      [[maybe_unused]] const float* a = scores + 4 * j;
      [[maybe_unused]] const float* d = products + 4 * j;
      if constexpr (Pass::kNeedsD || Pass::kOwnCredit) {
        operand_d[2 * j] = pack_bf16(d[0], d[1]) & upper;
        operand_d[2 * j + 1] = pack_bf16(d[2], d[3]) & lower;
      }
      if constexpr (Pass::kHasB) {
        const float keep = Pass::kDropout ? p.keep_scale : 1;
        operand_a[2 * j] = pack_bf16(a[0] * keep, a[1] * keep) & upper;
        operand_a[2 * j + 1] = pack_bf16(a[2] * keep, a[3] * keep) & lower;
        if constexpr (Pass::kDropout) {
          uint32_t dropped_upper, dropped_lower;
          pair_masks(dropped_word, j, dropped_upper, dropped_lower);
          operand_a[2 * j] &= ~dropped_upper;
          operand_a[2 * j + 1] &= ~dropped_lower;
        }
      }
      if constexpr (Pass::kOwnCredit) {
        uint32_t g[2] = {operand_d[2 * j], operand_d[2 * j + 1]};
        if constexpr (Pass::kShape) {
          float l[4] = {};
          if (p.paper) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              if constexpr (kColumns)
                asm volatile("ld.shared.f32 %0, [%1];"
                             : "=f"(l[e])
                             : "r"(place + Pass::kValues + (8 * j + 2 * (lane % 4) + (e & 1)) * 4));
              else
                l[e] = row_lse[e >> 1];
            }
          }
          uint32_t decided_upper, decided_lower, discarded_upper, discarded_lower;
          pair_masks(word & ~fixed_word, j, decided_upper, decided_lower);
          pair_masks(discarded_word, j, discarded_upper, discarded_lower);
          g[0] = (pack_bf16(credit_of(a[0], d[0], l[0]), credit_of(a[1], d[1], l[1])) & decided_upper) |
                 (discarded_credit & discarded_upper);
          g[1] = (pack_bf16(credit_of(a[2], d[2], l[2]), credit_of(a[3], d[3], l[3])) & decided_lower) |
                 (discarded_credit & discarded_lower);
        }
        operand_g[2 * j] = g[0];
        operand_g[2 * j + 1] = g[1];
      }
    }
  };

  // A probe's credit is d / (1 + a) / rate, with 1 / (1 + a) = 1 - a + a^2 where all shares are small.
  const auto pack_probes = [&](uint32_t place, auto any_share) {
    constexpr bool kAnyShare = decltype(any_share)::value;
    const uint32_t word = own_word(place + Pass::kProbeBits);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float *a = scores + 4 * j, *d = products + 4 * j;
      uint32_t upper, lower;
      pair_masks(word, j, upper, lower);
      float probe[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float each = d[e] * per_rate;
        probe[e] =
            kAnyShare ? d[e] * reciprocal(fmaf(a[e], rate, rate)) : fmaf(each, fmaf(a[e], a[e], -a[e]), each);
      }
      operand_g[2 * j] |= pack_bf16(probe[0], probe[1]) & upper;
      operand_g[2 * j + 1] |= pack_bf16(probe[2], probe[3]) & lower;
    }
  };

  const auto pack = [&](uint32_t place, Shares shares) {
    pack_edges(place);
    if constexpr (Pass::kProbes) {
      if (shares == Shares::kAny) pack_probes(place, std::true_type());
      if constexpr (Pass::kSmallShares)
        if (shares == Shares::kSmall) pack_probes(place, std::false_type());
    }
  };

  if (used_tiles > 0) {
    load_stage();
    copies_wait<1>();
    publish_copies();
    __syncthreads();
    products_begin();
    multiply_scores(places);
    products_wait<0>();
    settle(scores);
    settle(products);
    pack(places, weigh(places));
    uint32_t here = places;
    for (int t = 0; t < visits; ++t) {
      const uint32_t next = after(here);
      if ((t + 1) % kTiles == 0) {
        // The stage of tile t + 1 has arrived for everyone; and everyone is done with the stage before tile
        // t's, whose place the next one takes.
        copies_wait<0>();
        publish_copies();
        __syncthreads();
        load_stage();
      }
      settle(scores);
      settle(products);
      settle(grad_a);
      settle(grad_b);
      settle(grad_c);
      products_begin();
      multiply_scores(next);
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        if constexpr (Pass::kHasA) output_product(grad_a, operand_d + 4 * step, down_rows<D, 64>(here, step));
        if constexpr (Pass::kHasB)
          output_product(grad_b, operand_a + 4 * step, down_rows<D, 64>(here + Pass::kB, step));
        if constexpr (C > 0)
          output_product(grad_c, (Pass::kOwnCredit ? operand_g : operand_d) + 4 * step,
                         down_rows<C, 64>(here + Pass::kC, step));
      }
      products_commit();
      products_wait<1>();
      settle(scores);
      settle(products);
      const Shares shares = weigh(next);
      products_wait<0>();
      settle(grad_a);
      settle(grad_b);
      settle(grad_c);
      pack(next, shares);
      here = next;
    }
    copies_wait<0>();
  }
  if (!has_rows) return;
  const int first_row = outer_tile * 64;
  const auto store_bf16 = [&](const HeadTensor<Bf16>& to, float factor) {
    auto* const out = to.head(item, head);
    return [=, &p](int row, int column, float x, float y) {
      if (first_row + row < p.outer)
        *reinterpret_cast<uint32_t*>(out + (first_row + row) * to.row_stride + column) =
            pack_bf16(x * factor, y * factor);
    };
  };
  if constexpr (Pass::kHasA) each_output<D>(grad_a, store_bf16(p.grad_a, p.scale));
  if constexpr (Pass::kHasB) each_output<D>(grad_b, store_bf16(p.grad_b, 1));
  if constexpr (C > 0) {
    float* const out = p.grad_c.head(item, head);
    each_output<C>(grad_c, [&](int row, int column, float x, float y) {
      if (first_row + row < p.outer)
        *reinterpret_cast<float2*>(out + (first_row + row) * p.grad_c.row_stride + column) =
            make_float2(x, y);
    });
  }
}

template <typename Pass>
cudaError_t launch_pass(const PassParams<Bf16>& params, cudaStream_t stream) {
  auto* const kernel = tile_backward<Pass>;
  static const cudaError_t ready =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Pass::kBytes);
  if (ready != cudaSuccess) return ready;
  const dim3 grid((params.outer + Pass::kRows - 1) / Pass::kRows, params.batch * params.heads);
  if (grid.x == 0 || grid.y == 0) return cudaSuccess;
  kernel<<<grid, Pass::kThreads, Pass::kBytes, stream>>>(params);
  return cudaGetLastError();
}

// One side, in as few launches as registers allow.
template <int D, int C, bool kColumns, int kCredit>
cudaError_t launch_side(const PassParams<Bf16>& pass, cudaStream_t stream) {
  constexpr int kPlain = kCredit & (kDropped | kListed);  // what a launch without credit keeps of the flags
  if constexpr (D <= 32 || (D == 64 && C <= 32)) {
    return launch_pass<Pass<D, C, kColumns, kCredit, kSumA | kSumB | (C > 0 ? kSumC : 0)>>(pass, stream);
  } else {
    if constexpr (D == 64 || !kColumns) {
      if (const cudaError_t error = launch_pass<Pass<D, 0, kColumns, kPlain, kSumA | kSumB>>(pass, stream);
          error != cudaSuccess)
        return error;
    } else {
      if (const cudaError_t error = launch_pass<Pass<D, 0, kColumns, kPlain, kSumA>>(pass, stream);
          error != cudaSuccess)
        return error;
      if (const cudaError_t error = launch_pass<Pass<D, 0, kColumns, kPlain, kSumB>>(pass, stream);
          error != cudaSuccess)
        return error;
    }
    if constexpr (C > 0) return launch_pass<Pass<D, C, kColumns, kCredit, kSumC>>(pass, stream);
    return cudaSuccess;
  }
}

template <int D, int C, int kCredit>
cudaError_t launch_both(const TileBackwardParams<Bf16>& p, cudaStream_t stream) {
  launch_row_values<D>(p, stream);
  if (const cudaError_t error = launch_side<D, C, false, kCredit>(row_pass(p), stream); error != cudaSuccess)
    return error;
  return launch_side<D, C, true, kCredit>(column_pass(p), stream);
}

template <int D, int C, int kCredit>
cudaError_t launch_dropout(const TileBackwardParams<Bf16>& p, cudaStream_t stream) {
  if (p.dropped) return launch_both<D, C, kCredit | kDropped>(p, stream);
  if constexpr ((kCredit & kProbed) == 0) {
    // Discarded pairs may lie in tiles without edges.
    if (p.used.flags && !p.credit.discarded && p.shape.row_tiles() <= kMostListedTiles &&
        p.shape.column_tiles() <= kMostListedTiles)
      return launch_both<D, C, kCredit | kListed>(p, stream);
  }
  return launch_both<D, C, kCredit>(p, stream);
}

// Whatever shapes the credit is rare enough to share one kernel, with and without probes.
template <int D, int C>
cudaError_t launch_credit(const TileBackwardParams<Bf16>& p, cudaStream_t stream) {
  const TileCreditParams<Bf16>& credit = p.credit;
  if (credit.paper || credit.clip > 0 || credit.density_grad || credit.fixed || credit.discarded)
    return credit.probes ? launch_dropout<D, C, kProbed | kShaped>(p, stream)
                         : launch_dropout<D, C, kShaped>(p, stream);
  return credit.probes ? launch_dropout<D, C, kProbed>(p, stream) : launch_dropout<D, C, kSame>(p, stream);
}

template <int D>
cudaError_t launch_clusters(const TileBackwardParams<Bf16>& p, cudaStream_t stream) {
  switch (p.credit.clusters) {
    case 0:
      return launch_dropout<D, 0, kSame>(p, stream);
    case 32:
      return launch_credit<D, 32>(p, stream);
    case 128:
      return launch_credit<D, 128>(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace
}  // namespace edgewise::kernels::cuda
