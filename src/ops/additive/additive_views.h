// From tensors to the parameters of src/kernels/additive_params.h.
#pragma once

#include <ATen/ops/empty.h>

#include "graph/edge_plan.h"
#include "kernels/additive_params.h"
#include "ops/additive/additive_call.h"

namespace edgewise::ops {

template <typename T>
kernels::HeadRows<const T> rows_of(const at::Tensor& x) {
  return {x.const_data_ptr<T>(), x.stride(0), x.stride(1), x.stride(2)};
}
template <typename T>
kernels::HeadRows<T> rows_to_fill(const at::Tensor& x) {
  return {x.mutable_data_ptr<T>(), x.stride(0), x.stride(1), x.stride(2)};
}
// [B, H, N, width] whose memory is [B, N, H, width].
inline at::Tensor heads_inside(int64_t batch, int64_t heads, int64_t rows, int64_t width,
                               const at::TensorOptions& options) {
  return at::empty({batch, rows, heads, width}, options.requires_grad(false)).permute({0, 2, 1, 3});
}

inline kernels::HeadLists lists_by_rows(const EdgeSet& edges, int64_t heads) {
  const EdgeShape& shape = edges.shape();
  return {shape.batch,
          heads,
          shape.queries,
          shape.keys,
          shape.heads != heads,
          edges.row_offsets().const_data_ptr<int64_t>(),
          edges.col_indices().const_data_ptr<int32_t>()};
}
inline kernels::HeadLists lists_by_columns(const EdgeSet& edges, int64_t heads) {
  const EdgeShape& shape = edges.shape();
  const graph::TransposedEdges& turned = graph::EdgePlan::of(edges).transposed();
  return {shape.batch,
          heads,
          shape.keys,
          shape.queries,
          shape.heads != heads,
          turned.column_offsets.const_data_ptr<int64_t>(),
          turned.row_indices.const_data_ptr<int32_t>()};
}
// `keys`: on the device of the kernels.
inline kernels::DropoutParams dropout_params(double p, const at::Tensor& keys) {
  if (p == 0) return {};
  return {p, reinterpret_cast<const uint64_t*>(keys.const_data_ptr<int64_t>())};
}

// Everything but the lists.
template <typename T>
void fill_call(kernels::AdditiveCall<T>& call, const AdditiveInputs& in) {
  call.value_dim = in.value.size(3);
  call.slope = static_cast<T>(in.slope);
  call.dropout = dropout_params(in.dropout_p, in.head_keys);
  call.query_score = in.query_score.const_data_ptr<T>();
  call.key_score = in.key_score.const_data_ptr<T>();
  call.value = rows_of<T>(in.value);
}

}  // namespace edgewise::ops
