#include "edges/range_edges.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace edgewise {

EdgeSet range_edges(const EdgeShape& shape, const at::Tensor& first, const at::Tensor& last) {
  const at::TensorOptions options = first.options();
  const auto per_row = [&](const at::Tensor& bound) {  // [B*H*L]
    return bound.clamp(0, shape.keys)
        .unsqueeze(0)
        .expand({shape.batch, shape.heads, shape.queries})
        .reshape(-1);
  };
  const at::Tensor begin = per_row(first), degrees = (per_row(last) - begin).clamp_min(0);
  at::Tensor offsets = at::zeros({shape.rows() + 1}, options);
  offsets.narrow(0, 1, shape.rows()).copy_(at::cumsum(degrees, 0));
  // Within a row, columns count up from its first.
  const at::Tensor rows = at::arange(shape.rows(), options).repeat_interleave(degrees);
  const at::Tensor position = at::arange(rows.size(0), options) - offsets.index_select(0, rows);
  return EdgeSet::from_trusted_csr(shape, offsets, (begin.index_select(0, rows) + position).to(at::kInt));
}

EdgeChoice plain_choice(EdgeSet edges) {
  EdgeChoice choice;
  choice.edges = std::move(edges);
  return choice;
}

}  // namespace edgewise
