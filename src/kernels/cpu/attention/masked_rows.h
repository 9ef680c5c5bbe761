// Rows of a dense product over all keys of a head, made sparse: weights at edges and 0 elsewhere. For heads
// with so many edges that whole blocks are multiplied (ops/attention/masked_blocks.cpp). Compiled once per
// level (simd.h).
//
// With s = scale q . k in and g . v in `products`:  rows = exp(s - top) at edges, 0 elsewhere  (forward), or
// rows = a and products = scale a (g . v - g . o), the logits' gradients times scale            (backward).
#pragma once

#include <cmath>
#include <limits>

#include "kernels/cpu/attention/gathered_rows.h"
#include "kernels/cpu/attention/level_rows.h"
#include "kernels/params.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

template <typename T>
void masked_rows(const MaskedRowsParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  const CsrView& edges = params.edges;
  // 1 at the keys of the row's edges.
  const Scratch<Acc> scratch(1, edges.keys + V::kWidth);
  Acc* const is_edge = scratch.buffer(0);
  const auto for_keys = [&](const auto& body) EDGEWISE_INLINE_LAMBDA {  // body(key, lanes that exist)
    int64_t j = 0;
    for (; j + V::kWidth <= edges.keys; j += V::kWidth) body(j, V::kWidth);
    if (j < edges.keys) body(j, static_cast<int>(edges.keys - j));
  };
  for (int64_t j = 0; j < edges.keys; ++j) is_edge[j] = 0;
  const V scale = V::broadcast(static_cast<Acc>(params.scale)), zero = V::zero(), one = V::broadcast(1);
  const V lowest = V::broadcast(std::numeric_limits<Acc>::lowest());
  for (int64_t row = row_begin; row < row_end; ++row) {
    Acc* const scores = params.rows + (row - params.first_row) * edges.keys;
    const int64_t begin = edges.row_offsets[row], end = edges.row_offsets[row + 1];
    for (int64_t e = begin; e < end; ++e) is_edge[edges.col_indices[e]] = 1;
    V tops = lowest, totals = zero;
    for_keys([&](int64_t j, int lanes) EDGEWISE_INLINE_LAMBDA {
      const V here = V::load_first(is_edge + j, lanes);
      // s at an edge, the lowest number elsewhere.
      tops = max(tops, fma(one - here, lowest, here * (scale * V::load_first(scores + j, lanes))));
    });
    const V top = V::broadcast(largest(tops));
    for_keys([&](int64_t j, int lanes) EDGEWISE_INLINE_LAMBDA {
      // At an edge s <= top; elsewhere the bound keeps exp finite.
      const V below = max(zero, top - scale * V::load_first(scores + j, lanes));
      const V weights = V::load_first(is_edge + j, lanes) * exp(zero - below);
      zero.store(is_edge + j);
      weights.store_first(scores + j, lanes);
      totals = totals + weights;
    });
    const Acc total = sum(totals);
    const Acc share = end > begin ? 1 / total : 0;
    if (params.shares) params.shares[row - params.first_row] = share;
    if (params.lse)
      params.lse[row] = end > begin ? largest(tops) + std::log(total) : -std::numeric_limits<Acc>::infinity();
    if (!params.products) continue;
    Acc* const products = params.products + (row - params.first_row) * edges.keys;
    const V ubar = V::broadcast(sum(Left<T, 0>(params.grad_output + row * params.value_dim, params.value_dim)
                                        .products(params.output + row * params.value_dim)));
    const V normal = V::broadcast(share);
    for_keys([&](int64_t j, int lanes) EDGEWISE_INLINE_LAMBDA {
      const V weights = normal * V::load_first(scores + j, lanes);
      weights.store_first(scores + j, lanes);
      (scale * (weights * (V::load_first(products + j, lanes) - ubar))).store_first(products + j, lanes);
    });
  }
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
