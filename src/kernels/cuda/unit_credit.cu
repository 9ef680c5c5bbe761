// The credit of probes that come in units (probe_units.h), added to the gradients of the memberships: with
// a = exp(s - lse), u = do v^T of an absent pair of a chosen square and G = a (u - ubar) / (1 + a) / rate,
//   row pass     d(query_membership) += G key_side
//   column pass  d(key_side) += G^T query_membership
// after the tile kernels, which then know nothing of probes: few squares are chosen, and a tile that looked
// for them would pay for all.
//
// A warp owns the 16 "outer" tokens of a row of squares (queries in the row pass, keys in the column pass)
// and visits the chosen ones, 16 "inner" tokens each, on tensor cores (mma.sync). Operands come straight from
// global memory: a sum over head dims may go in any order, so a lane reads D/4 neighbours of a token where
// the product's own order would scatter them; and the columns of the memberships are dealt out to lanes
// likewise.
#include "kernels/cuda/bit_tiles.cuh"
#include "kernels/cuda/tile_params.h"
#include "kernels/cuda/warp_products.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/probe_units.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896f;
constexpr int kWarps = 4, kUnit = kProbeUnit;

struct UnitPassParams {
  int heads, outer, inner;  // tokens on each side
  float scale;
  FewEdges left_out;
  HeadTensor<const Bf16> outer_a, inner_a, outer_b, inner_b;  // as in tile_backward.cuh
  HeadTensor<const Bf16> inner_c;
  const float* row_values;  // [2, B*H*L]
  int64_t query_count;      // B*H*L
  const uint8_t* units;     // by outer tokens
  const uint32_t* probes;   // bit plane by queries
  const float* probe_rates;
  HeadTensor<float> grad_c;
};

// 2 kWords bf16 numbers.
template <int kWords>
__device__ void load_words(uint32_t (&to)[kWords], const Bf16* from, bool exists) {
  static_assert(kWords == 2 || kWords % 4 == 0);
#pragma unroll
  for (uint32_t& word : to) word = 0;
  if (!exists) return;
  if constexpr (kWords == 2) {
    const uint2 x = __ldg(reinterpret_cast<const uint2*>(from));
    to[0] = x.x, to[1] = x.y;
  } else {
#pragma unroll
    for (int n = 0; n < kWords; n += 4) {
      const uint4 x = __ldg(reinterpret_cast<const uint4*>(from) + n / 4);
      to[n] = x.x, to[n + 1] = x.y, to[n + 2] = x.z, to[n + 3] = x.w;
    }
  }
}

template <int D, int C, bool kColumns>
__global__ void __launch_bounds__(kWarps * 32) unit_credit(const __grid_constant__ UnitPassParams p) {
  constexpr int kDims = D / 8;          // words of a lane's D/4 head dims
  constexpr int kColumnWords = C / 16;  // and of its C/8 memberships
  const int head_index = blockIdx.y, item = head_index / p.heads, head = head_index % p.heads;
  if (p.left_out.has(head_index)) return;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int window = blockIdx.x * kWarps + __shfl_sync(~0u, threadIdx.x / 32, 0), first = window * kUnit;
  if (first >= p.outer) return;
  const int outer_tiles = (p.outer + 63) / 64, inner_tiles = (p.inner + 63) / 64;
  const int blocks = (p.inner + 255) / 256;  // a word of flags is four tiles
  const uint32_t* const units = reinterpret_cast<const uint32_t*>(p.units) +
                                (static_cast<int64_t>(head_index) * outer_tiles * 4 + window) * blocks;
  const float* const lse2 = p.row_values + static_cast<int64_t>(head_index) * (kColumns ? p.inner : p.outer);
  const float* const ubar = lse2 + p.query_count;
  const float to_log2 = p.scale * kLog2E, rate = p.probe_rates[item];

  // Outer tokens g and g + 8: words of a and b, lse and ubar.
  uint32_t own_a[2][kDims], own_b[2][kDims];
  float row_lse[2] = {}, row_ubar[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + g + 8 * half;
    const bool exists = row < p.outer;
    load_words(own_a[half], p.outer_a.head(item, head) + row * p.outer_a.row_stride + t * (D / 4), exists);
    load_words(own_b[half], p.outer_b.head(item, head) + row * p.outer_b.row_stride + t * (D / 4), exists);
    if (!kColumns && exists) row_lse[half] = __ldg(lse2 + row), row_ubar[half] = __ldg(ubar + row);
  }
  const Bf16 *const inner_a = p.inner_a.head(item, head) + t * (D / 4),
                    *const inner_b = p.inner_b.head(item, head) + t * (D / 4),
                    *const inner_c = p.inner_c.head(item, head) + g * (C / 8);
  float grad[C / 8][4] = {};

  const auto visit = [&](int tile, int square) {
    const int token = tile * 64 + square * kUnit;
    // Memberships of tokens 2 t, 2 t + 1, 2 t + 8, 2 t + 9; lse and ubar of the same where they are queries.
    uint32_t members[4][kColumnWords];
    float lse[4], mean[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int at = token + 8 * (n / 2) + 2 * t + n % 2;
      const bool exists = at < p.inner;
      load_words(members[n], inner_c + at * p.inner_c.row_stride, exists);
      if constexpr (kColumns) {
        lse[n] = exists ? __ldg(lse2 + at) : 0;
        mean[n] = exists ? __ldg(ubar + at) : 0;
      }
    }
    // Which pairs are probes: masks of two packed halves each.
    uint32_t masks[4];
    if constexpr (kColumns) {
      // Query 8 half + 2 t + h of the square is in word 4 (2 t + h) + g / 2, key g + 8 e at bit
      // 7 + 8 (2 half + g % 2) - (2 part + e).
      const uint32_t* const words =
          p.probes +
          ((static_cast<int64_t>(head_index) * inner_tiles + tile) * outer_tiles + window / 4) * kTileWords +
          square * 32 + 8 * t + g / 2;
      const uint32_t even = __ldg(words), odd = __ldg(words + 4);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int bit = 7 + 8 * (2 * half + g % 2) - (2 * (window % 4) + e);
          masks[2 * half + e] = (even >> bit & 1 ? 0x0000FFFFu : 0) | (odd >> bit & 1 ? 0xFFFF0000u : 0);
        }
    } else {
      const uint32_t word = __ldg(
          p.probes +
          ((static_cast<int64_t>(head_index) * outer_tiles + window / 4) * inner_tiles + tile) * kTileWords +
          window % 4 * 32 + lane);
      pair_masks(word, 2 * square, masks[0], masks[1]);
      pair_masks(word, 2 * square + 1, masks[2], masks[3]);
    }
    float s[2][4] = {}, u[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = token + 8 * half + g;
      uint32_t a[kDims], b[kDims];
      load_words(a, inner_a + at * p.inner_a.row_stride, at < p.inner);
      load_words(b, inner_b + at * p.inner_b.row_stride, at < p.inner);
#pragma unroll
      for (int n = 0; n < kDims; n += 2) {
        multiply(s[half], {own_a[0][n], own_a[1][n], own_a[0][n + 1], own_a[1][n + 1]}, a[n], a[n + 1]);
        multiply(u[half], {own_b[0][n], own_b[1][n], own_b[0][n + 1], own_b[1][n + 1]}, b[n], b[n + 1]);
      }
    }
    uint32_t operand[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float credit[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float l = kColumns ? lse[2 * half + (e & 1)] : row_lse[e >> 1],
                    m = kColumns ? mean[2 * half + (e & 1)] : row_ubar[e >> 1];
        // The share of an absent pair, a / (1 + a); 2^100 stands for infinity.
        const float weight = fminf(exp2_fast(s[half][e] * to_log2 - l), 0x1.0p100f);
        credit[e] = __fdividef(weight * (u[half][e] - m), fmaf(weight, rate, rate));
      }
      operand[2 * half] = pack_bf16(credit[0], credit[1]) & masks[2 * half];
      operand[2 * half + 1] = pack_bf16(credit[2], credit[3]) & masks[2 * half + 1];
    }
    // Column n of block j of the product is membership n C/8 + j.
#pragma unroll
    for (int j = 0; j < C / 8; ++j) {
      const auto column = [&](int n) {
        return __byte_perm(members[n][j / 2], members[n + 1][j / 2], j % 2 ? 0x7632 : 0x5410);
      };
      multiply(grad[j], operand, column(0), column(2));
    }
  };

  bool any = false;
  for (int from = 0; from < blocks; from += 32) {
    const uint32_t mine = from + lane < blocks ? __ldg(units + from + lane) : 0;
    for (unsigned votes = __ballot_sync(~0u, mine != 0); votes; votes &= votes - 1) {
      const int block = __ffs(static_cast<int>(votes)) - 1;
      any = true;
#pragma unroll 1
      for (uint32_t chosen = __shfl_sync(~0u, mine, block); chosen; chosen &= chosen - 1) {
        const int bit = __ffs(static_cast<int>(chosen)) - 1;
        visit((from + block) * 4 + bit / 8, bit % 8);
      }
    }
  }
  if (!any) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + g + 8 * half;
    if (row >= p.outer) continue;
    float* const to = p.grad_c.head(item, head) + row * p.grad_c.row_stride + 2 * t * (C / 8);
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int j = 0; j < C / 8; j += 4) {
        auto* const at = reinterpret_cast<float4*>(to + n * (C / 8) + j);
        const int e = 2 * half + n;
        float4 sum = *at;
        sum.x += grad[j][e], sum.y += grad[j + 1][e], sum.z += grad[j + 2][e], sum.w += grad[j + 3][e];
        *at = sum;
      }
  }
}

template <int D, int C, bool kColumns>
cudaError_t launch_pass(const UnitPassParams& p, int64_t heads, cudaStream_t stream) {
  const int windows = (p.outer + kUnit - 1) / kUnit;
  const dim3 grid(static_cast<unsigned>((windows + kWarps - 1) / kWarps), static_cast<unsigned>(heads));
  unit_credit<D, C, kColumns><<<grid, kWarps * 32, 0, stream>>>(p);
  return cudaGetLastError();
}

template <int D, int C>
int launch_both(const UnitCreditParams& p, cudaStream_t stream) {
  const TileCreditParams& credit = p.credit;
  const int64_t heads = p.shape.batch * p.shape.heads;
  UnitPassParams pass{};
  pass.heads = static_cast<int>(p.shape.heads);
  pass.scale = p.scale;
  pass.left_out = p.left_out;
  pass.row_values = p.row_values;
  pass.query_count = heads * p.shape.queries;
  pass.probes = credit.probes;
  pass.probe_rates = credit.probe_rates;

  pass.outer = static_cast<int>(p.shape.queries), pass.inner = static_cast<int>(p.shape.keys);
  pass.outer_a = p.query, pass.inner_a = p.key, pass.outer_b = p.grad_output, pass.inner_b = p.value;
  pass.inner_c = credit.key_side;
  pass.units = p.by_queries;
  pass.grad_c = credit.query_membership_grad;
  if (const cudaError_t error = launch_pass<D, C, false>(pass, heads, stream); error != cudaSuccess)
    return error;

  pass.outer = static_cast<int>(p.shape.keys), pass.inner = static_cast<int>(p.shape.queries);
  pass.outer_a = p.key, pass.inner_a = p.query, pass.outer_b = p.value, pass.inner_b = p.grad_output;
  pass.inner_c = credit.query_membership;
  pass.units = p.by_keys;
  pass.grad_c = credit.key_side_grad;
  return launch_pass<D, C, true>(pass, heads, stream);
}

template <int D>
int launch_clusters(const UnitCreditParams& p, cudaStream_t stream) {
  if (p.credit.clusters == 32) return launch_both<D, 32>(p, stream);
  return p.credit.clusters == 128 ? launch_both<D, 128>(p, stream) : cudaErrorInvalidValue;
}

}  // namespace

int launch_unit_credit(const UnitCreditParams& p, Stream given) {
  if (p.shape.words() == 0) return cudaSuccess;
  const auto stream = static_cast<cudaStream_t>(given);
  switch (p.head_dim) {
    case 16:
      return launch_clusters<16>(p, stream);
    case 32:
      return launch_clusters<32>(p, stream);
    case 64:
      return launch_clusters<64>(p, stream);
    case 128:
      return launch_clusters<128>(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace edgewise::kernels::cuda
