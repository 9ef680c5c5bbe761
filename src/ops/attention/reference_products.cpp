// Products with per-edge values in plain ATen. Where edges are many, one dense matrix product beats gathering
// a row per edge.
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include "ops/attention/reference.h"

namespace edgewise::ops::reference {
namespace {

// Row of every edge in [B*H*L, .] and of its key in [B*H*S, .].
std::pair<at::Tensor, at::Tensor> edge_places(const EdgeSet& edges) {
  const EdgeShape& shape = edges.shape();
  const at::Tensor rows = edges.edge_rows();
  return {rows, rows.div(std::max<int64_t>(shape.queries, 1), "floor") * shape.keys + edges.col_indices()};
}

bool prefers_dense(const EdgeSet& edges) {
  return edges.shape().pairs() < int64_t{4} << 30 && edges.edge_count() > edges.shape().pairs() / 64;
}

at::Tensor value_matrix(const EdgeSet& edges, const at::Tensor& values) {  // [E] -> [B, H, L, S]
  const EdgeShape& shape = edges.shape();
  const at::Tensor place = edges.edge_rows() * shape.keys + edges.col_indices();
  return at::zeros({shape.pairs()}, values.options())
      .index_copy_(0, place, values)
      .view({shape.batch, shape.heads, shape.queries, shape.keys});
}

at::Tensor gather_rows(const at::Tensor& dense, const at::Tensor& places) {
  return dense.reshape({-1, dense.size(3)}).index_select(0, places);
}

}  // namespace

at::Tensor multiply_rows(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense) {
  if (prefers_dense(edges))
    return at::matmul(value_matrix(edges, values), dense.to(values.scalar_type())).to(dense.scalar_type());
  const EdgeShape& shape = edges.shape();
  const auto [rows, keys] = edge_places(edges);
  const at::Tensor parts = gather_rows(dense, keys) * values.unsqueeze(1);
  return at::zeros({shape.rows(), dense.size(3)}, parts.options())
      .index_add(0, rows, parts)
      .view({shape.batch, shape.heads, shape.queries, dense.size(3)})
      .to(dense.scalar_type());
}

at::Tensor multiply_columns(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense) {
  if (prefers_dense(edges))
    return at::matmul(value_matrix(edges, values).transpose(2, 3), dense.to(values.scalar_type()))
        .to(dense.scalar_type());
  const EdgeShape& shape = edges.shape();
  const auto [rows, keys] = edge_places(edges);
  const at::Tensor parts = gather_rows(dense, rows) * values.unsqueeze(1);
  return at::zeros({shape.columns(), dense.size(3)}, parts.options())
      .index_add(0, keys, parts)
      .view({shape.batch, shape.heads, shape.keys, dense.size(3)})
      .to(dense.scalar_type());
}

at::Tensor edge_dot(const EdgeSet& edges, const at::Tensor& left, const at::Tensor& right) {
  const auto [rows, keys] = edge_places(edges);
  return (gather_rows(left, rows) * gather_rows(right, keys)).sum(1);
}

}  // namespace edgewise::ops::reference
