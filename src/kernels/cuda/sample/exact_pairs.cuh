// Whether a pair is an edge, decided as the direct sampler on CPU decides it, bit for bit.
#pragma once

#include "kernels/cuda/tiles/tile_params.h"
#include "kernels/pair_numbers.h"

namespace edgewise::kernels::cuda {
namespace {

// As the direct sampler on CPU: clusters in order, no fused multiply-add.
__device__ float exact_p(const TileSampleParams& p, int item, int head, int row, int column) {
  float sum = p.exploration;
  const auto add = [&](float q, float t) { sum = __fadd_rn(sum, __fmul_rn(q, t)); };
  if (p.exact_query_membership.data) {
    const auto* q = reinterpret_cast<const float4*>(p.exact_query_membership.head(item, head) +
                                                    row * p.exact_query_membership.row_stride);
    const auto* t = reinterpret_cast<const float4*>(p.exact_key_side.head(item, head) +
                                                    column * p.exact_key_side.row_stride);
#pragma unroll 4
    for (int n = 0; n < p.clusters / 4; ++n) {
      const float4 a = q[n], b = t[n];
      add(a.x, b.x), add(a.y, b.y), add(a.z, b.z), add(a.w, b.w);
    }
  } else {
    const auto* q = reinterpret_cast<const uint4*>(p.query_membership.head(item, head) +
                                                   row * p.query_membership.row_stride);
    const auto* t =
        reinterpret_cast<const uint4*>(p.key_side.head(item, head) + column * p.key_side.row_stride);
#pragma unroll 4
    for (int n = 0; n < p.clusters / 8; ++n) {
      const uint4 a = q[n], b = t[n];
      const uint32_t left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        add(__uint_as_float(left[m] << 16), __uint_as_float(right[m] << 16));
        add(__uint_as_float(left[m] & 0xFFFF0000u), __uint_as_float(right[m] & 0xFFFF0000u));
      }
    }
  }
  return sum;
}

__device__ bool exact_edge(const TileSampleParams& p, int head_index, int row, int column) {
  const double sum = exact_p(p, head_index / p.shape.heads, head_index % p.shape.heads, row, column);
  const double capped = fmin(sum, 1.0), probability = p.poisson ? -expm1(-capped) : capped;
  return pair_number(p.edge_keys[head_index], row, column) < probability * 4294967296.0;
}

}  // namespace
}  // namespace edgewise::kernels::cuda
