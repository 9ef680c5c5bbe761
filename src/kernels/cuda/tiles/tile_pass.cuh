// What the backward passes over bit tiles share, in bf16 (tile_backward.cuh) and fp32
// (float_tile_backward.cuh): the row pass and the column pass as one kernel sees them, and the numbers of
// every query that both need.
#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/tiles/tile_params.h"

namespace edgewise::kernels::cuda {
namespace {  // each head dim is compiled by itself

constexpr float kLog2E = 1.44269504088896f, kLn2 = 0.693147180559945f;

// One pass, as the kernel sees it.
template <typename T>
struct PassParams {
  int batch, heads, outer, inner;  // tokens on each side
  float scale;
  HeadTensor<const T> outer_a, inner_a;      // scores: query and key, or key and query
  HeadTensor<const T> outer_b, inner_b;      // u: grad_output and value, or value and grad_output
  HeadTensor<const T> inner_c;               // memberships of the inner side
  const uint32_t *tiles, *probes, *dropped;  // by outer tokens
  float keep_scale;
  UsedTiles used;
  FewEdges left_out;
  const float* row_values;  // [2, B*H*L] lse log2(e) and ubar of the queries
  int64_t query_count;      // B*H*L
  bool paper;
  float clip;
  const float *density_grad, *probe_rates;
  const uint32_t *fixed, *discarded;  // by outer tokens, as the tiles; null = none
  HeadTensor<T> grad_a, grad_b;       // of outer_a and, in the column pass, of outer_b
  HeadTensor<float> grad_c;           // of the outer side's memberships
};

template <typename T>
PassParams<T> common_pass(const TileBackwardParams<T>& p) {
  PassParams<T> pass{};
  pass.batch = static_cast<int>(p.shape.batch);
  pass.heads = static_cast<int>(p.shape.heads);
  pass.scale = p.scale;
  pass.row_values = p.row_values;
  pass.query_count = p.shape.batch * p.shape.heads * p.shape.queries;
  pass.paper = p.credit.paper;
  pass.clip = p.credit.clip;
  pass.keep_scale = p.keep_scale;
  pass.density_grad = p.credit.density_grad;
  pass.left_out = p.left_out;
  pass.probe_rates = p.credit.probe_rates;
  return pass;
}

template <typename T>
PassParams<T> row_pass(const TileBackwardParams<T>& p) {
  const TileCreditParams<T>& credit = p.credit;
  PassParams<T> pass = common_pass(p);
  pass.outer = static_cast<int>(p.shape.queries);
  pass.inner = static_cast<int>(p.shape.keys);
  pass.outer_a = p.query, pass.inner_a = p.key, pass.outer_b = p.grad_output, pass.inner_b = p.value;
  pass.inner_c = credit.key_side;
  pass.tiles = p.tiles, pass.probes = credit.probes, pass.dropped = p.dropped;
  pass.fixed = credit.fixed, pass.discarded = credit.discarded;
  pass.used = p.used;
  pass.grad_a = p.query_grad, pass.grad_c = credit.query_membership_grad;
  return pass;
}

template <typename T>
PassParams<T> column_pass(const TileBackwardParams<T>& p) {
  const TileCreditParams<T>& credit = p.credit;
  PassParams<T> pass = common_pass(p);
  pass.outer = static_cast<int>(p.shape.keys);
  pass.inner = static_cast<int>(p.shape.queries);
  pass.outer_a = p.key, pass.inner_a = p.query, pass.outer_b = p.value, pass.inner_b = p.grad_output;
  pass.inner_c = credit.query_membership;
  pass.tiles = p.tiles_transposed, pass.probes = credit.probes_transposed,
  pass.dropped = p.dropped_transposed;
  pass.fixed = credit.fixed_transposed, pass.discarded = credit.discarded_transposed;
  pass.used = p.used.by_keys();
  pass.grad_a = p.key_grad, pass.grad_b = p.value_grad, pass.grad_c = credit.key_side_grad;
  return pass;
}

__device__ float2 two_numbers(const Bf16* from) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
}
__device__ float2 two_numbers(const float* from) {
  return *reinterpret_cast<const float2*>(from);
}

// lse log2(e) and ubar = grad_output . output of every query; four lanes a row.
template <int D, typename T>
__global__ void row_values(const __grid_constant__ TileBackwardParams<T> p) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t rows = p.shape.batch * p.shape.heads * p.shape.queries, row = index / 4;
  const int part = index % 4;
  float sum = 0;
  const bool wanted = row < rows && !p.left_out.has(row / p.shape.queries);
  if (wanted) {
    const int64_t head_index = row / p.shape.queries, item = head_index / p.shape.heads,
                  head = head_index % p.shape.heads;
    const T* o = p.output.head(item, head) + row % p.shape.queries * p.output.row_stride;
    const T* g = p.grad_output.head(item, head) + row % p.shape.queries * p.grad_output.row_stride;
#pragma unroll
    for (int d = part * (D / 4); d < (part + 1) * (D / 4); d += 2) {
      const float2 x = two_numbers(o + d), y = two_numbers(g + d);
      sum += x.x * y.x + x.y * y.y;
    }
  }
  sum += __shfl_xor_sync(~0u, sum, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (wanted && part == 0) {
    p.row_values[row] = p.lse[row] * kLog2E;
    p.row_values[rows + row] = sum;
  }
}
template <int D, typename T>
void launch_row_values(const TileBackwardParams<T>& p, cudaStream_t stream) {
  const int64_t rows = p.shape.batch * p.shape.heads * p.shape.queries;
  if (rows > 0) row_values<D><<<static_cast<unsigned>((rows * 4 + 255) / 256), 256, 0, stream>>>(p);
}

}  // namespace
}  // namespace edgewise::kernels::cuda
