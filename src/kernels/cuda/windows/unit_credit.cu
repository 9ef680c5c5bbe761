// The credit of probes that come in units (probe_units.h), added to the gradients of the memberships: with
// a = exp(s - lse), u = do v^T of an absent pair of a chosen square and G = a (u - ubar) / (1 + a) / rate,
//   row pass     d(query_membership) += G key_side
//   column pass  d(key_side) += G^T query_membership
// after the tile kernels, which then know nothing of probes: few squares are chosen, and a tile that looked
// for them would pay for all. For 32 clusters; with 128 the sums and memberships of a square move so many
// bytes that the tile kernels are no slower (docs/kernels/cuda-tiles.md).
//
// A warp owns the 16 "outer" tokens of a row of squares (queries in the row pass, keys in the column pass)
// and visits the chosen ones, 16 "inner" tokens each, on tensor cores (mma.sync). Operands come straight from
// global memory: a sum over head dims may go in any order, so a lane reads D/4 neighbours of a token where
// the product's own order would scatter them; and the columns of the memberships are dealt out to lanes
// likewise.
#include "kernels/cuda/device/warp_products.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/tiles/bit_tiles.cuh"
#include "kernels/cuda/tiles/tile_params.h"
#include "kernels/probe_units.h"

namespace edgewise::kernels::cuda {
namespace {

constexpr float kLog2E = 1.44269504088896f;
constexpr int kWarps = 4, kUnit = kProbeUnit, C = 32;  // clusters
static_assert(unit_credit_takes(C));

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
__device__ void load_words(uint32_t* to, const Bf16* from) {
  static_assert(kWords == 2 || kWords % 4 == 0);
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

template <int D, bool kColumns>
__global__ void __launch_bounds__(kWarps * 32) unit_credit(const __grid_constant__ UnitPassParams p) {
  constexpr int kDims = D / 8;  // words of a lane's D/4 head dims
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
    const int row = min(first + g + 8 * half, p.outer - 1);
    load_words<kDims>(own_a[half], p.outer_a.head(item, head) + row * p.outer_a.row_stride + t * (D / 4));
    load_words<kDims>(own_b[half], p.outer_b.head(item, head) + row * p.outer_b.row_stride + t * (D / 4));
    if (!kColumns) row_lse[half] = __ldg(lse2 + row), row_ubar[half] = __ldg(ubar + row);
  }
  const Bf16 *const inner_a = p.inner_a.head(item, head) + t * (D / 4),
                    *const inner_b = p.inner_b.head(item, head) + t * (D / 4),
                    *const inner_c = p.inner_c.head(item, head) + g * 4;
  // The sums so far, all on their way at once. Column n of block j of the product is membership
  // 32 (j / 4) + 4 n + j % 4: so four blocks are 16 bytes of a row of sums, 8 of a row of memberships.
  float grad[C / 8][4];
  const auto each_four = [&](const auto& body) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = first + g + 8 * (e >> 1);
      float* const sums = p.grad_c.head(item, head) + row * p.grad_c.row_stride + 4 * (2 * t + e % 2);
#pragma unroll
      for (int j = 0; j < C / 8; j += 4) body(reinterpret_cast<float4*>(sums + 8 * j), row < p.outer, j, e);
    }
  };
  each_four([&](const float4* sums, bool exists, int j, int e) {
    const float4 x = exists ? *sums : float4{};
    grad[j][e] = x.x, grad[j + 1][e] = x.y, grad[j + 2][e] = x.z, grad[j + 3][e] = x.w;
  });

  // Tokens beyond the last are the last once more: none of their pairs is a probe.
  const auto visit = [&](int tile, int square) {
    const int token = tile * 64 + square * kUnit;
    // Memberships of tokens 2 t, 2 t + 1, 2 t + 8, 2 t + 9; lse and ubar of the same where they are queries.
    uint32_t members[4][C / 16];
    float lse[4], mean[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int at = min(token + 8 * (n / 2) + 2 * t + n % 2, p.inner - 1);
#pragma unroll
      for (int m = 0; m < C / 32; ++m)
        load_words<2>(members[n] + 2 * m, inner_c + at * p.inner_c.row_stride + 32 * m);
      if constexpr (kColumns) lse[n] = __ldg(lse2 + at), mean[n] = __ldg(ubar + at);
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
    uint32_t inner_words[2][2][kDims];  // of token g of each half: a, b
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = min(token + 8 * half + g, p.inner - 1);
      load_words<kDims>(inner_words[half][0], inner_a + at * p.inner_a.row_stride);
      load_words<kDims>(inner_words[half][1], inner_b + at * p.inner_b.row_stride);
    }
    float s[2][4] = {}, u[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kDims; n += 2) {
        const auto &a = inner_words[half][0], &b = inner_words[half][1];
        multiply(s[half], {own_a[0][n], own_a[1][n], own_a[0][n + 1], own_a[1][n + 1]}, a[n], a[n + 1]);
        multiply(u[half], {own_b[0][n], own_b[1][n], own_b[0][n + 1], own_b[1][n + 1]}, b[n], b[n + 1]);
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
  each_four([&](float4* sums, bool exists, int j, int e) {
    if (exists) *sums = make_float4(grad[j][e], grad[j + 1][e], grad[j + 2][e], grad[j + 3][e]);
  });
}

template <int D, bool kColumns>
cudaError_t launch_pass(const UnitPassParams& p, int64_t heads, cudaStream_t stream) {
  const int windows = (p.outer + kUnit - 1) / kUnit;
  const dim3 grid(static_cast<unsigned>((windows + kWarps - 1) / kWarps), static_cast<unsigned>(heads));
  unit_credit<D, kColumns><<<grid, kWarps * 32, 0, stream>>>(p);
  return cudaGetLastError();
}

template <int D>
int launch_both(const UnitCreditParams& p, cudaStream_t stream) {
  const TileCreditParams<Bf16>& credit = p.credit;
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
  if (const cudaError_t error = launch_pass<D, false>(pass, heads, stream); error != cudaSuccess)
    return error;

  pass.outer = static_cast<int>(p.shape.keys), pass.inner = static_cast<int>(p.shape.queries);
  pass.outer_a = p.key, pass.inner_a = p.query, pass.outer_b = p.value, pass.inner_b = p.grad_output;
  pass.inner_c = credit.query_membership;
  pass.units = p.by_keys;
  pass.grad_c = credit.key_side_grad;
  return launch_pass<D, true>(pass, heads, stream);
}

}  // namespace

int launch_unit_credit(const UnitCreditParams& p, Stream given) {
  if (p.shape.words() == 0) return cudaSuccess;
  if (!unit_credit_takes(p.credit.clusters)) return cudaErrorInvalidValue;
  const auto stream = static_cast<cudaStream_t>(given);
  switch (p.head_dim) {
    case 16:
      return launch_both<16>(p, stream);
    case 32:
      return launch_both<32>(p, stream);
    case 64:
      return launch_both<64>(p, stream);
    case 128:
      return launch_both<128>(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace edgewise::kernels::cuda
