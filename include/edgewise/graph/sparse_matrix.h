// A sparse matrix as edges from rows to columns with a number each, and its transpose: the features of a
// graph's nodes, of which most are 0.
#pragma once

#include <edgewise/graph/edge_set.h>

namespace edgewise {

struct SparseMatrix {
  EdgeSet rows;              // [1, 1, N, F]
  at::Tensor row_values;     // [Z] in the order of `rows`
  EdgeSet columns;           // [1, 1, F, N]
  at::Tensor column_values;  // [Z] in the order of `columns`

  // offsets [N + 1] int64, columns [Z] int32 in order within a row, values [Z], on the CPU. Checked.
  static SparseMatrix from_csr(int64_t width, at::Tensor offsets, at::Tensor columns, at::Tensor values);
  SparseMatrix to(at::Device device) const;
  SparseMatrix to(at::ScalarType dtype) const;
};

}  // namespace edgewise
