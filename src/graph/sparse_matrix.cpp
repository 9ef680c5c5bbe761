#include <edgewise/graph/sparse_matrix.h>

#include <ATen/TensorOperators.h>

#include "graph/edge_plan.h"

namespace edgewise {

SparseMatrix SparseMatrix::from_csr(int64_t width, at::Tensor offsets, at::Tensor columns,
                                    at::Tensor values) {
  SparseMatrix result;
  const EdgeShape shape{1, 1, offsets.size(0) - 1, width};
  result.rows = EdgeSet::from_csr(shape, std::move(offsets), std::move(columns));
  TORCH_CHECK_VALUE(values.dim() == 1 && values.size(0) == result.rows.edge_count(),
                    "SparseMatrix: expected a value for each of ", result.rows.edge_count(), " entries; got ",
                    values.sizes());
  result.row_values = std::move(values).contiguous();
  const graph::TransposedEdges& turned = graph::EdgePlan::of(result.rows).transposed();
  result.columns =
      EdgeSet::from_trusted_csr({1, 1, width, shape.queries}, turned.column_offsets, turned.row_indices);
  result.column_values = result.row_values.index_select(0, turned.edge_ids);
  return result;
}

SparseMatrix SparseMatrix::to(at::Device device) const {
  return {rows.to(device), row_values.to(device), columns.to(device), column_values.to(device)};
}

SparseMatrix SparseMatrix::to(at::ScalarType dtype) const {
  return {rows, row_values.to(dtype), columns, column_values.to(dtype)};
}

}  // namespace edgewise
