#include "graph/checks.h"

#include <limits>

namespace edgewise::graph {
namespace {

using kernels::CsrFault;
using kernels::CsrFaultKind;

// In the order of kernels/csr_fault.h.
CsrFault first_fault(const EdgeShape& shape, const int64_t* offsets, const int32_t* columns, int64_t edges) {
  const int64_t rows = shape.rows();
  if (offsets[0] != 0) return {CsrFaultKind::kFirstOffset, 0, offsets[0], 0, 0};
  if (offsets[rows] != edges) return {CsrFaultKind::kLastOffset, 0, offsets[rows], 0, edges};
  for (int64_t row = 0; row < rows; ++row)
    if (offsets[row] > offsets[row + 1] || offsets[row + 1] > edges)
      return {CsrFaultKind::kFallingOffsets, row, offsets[row], offsets[row + 1], 0};
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t e = offsets[row]; e < offsets[row + 1]; ++e) {
      if (columns[e] < 0 || columns[e] >= shape.keys)
        return {CsrFaultKind::kColumn, row, columns[e], 0, shape.keys};
      if (e > offsets[row] && columns[e - 1] >= columns[e])
        return {CsrFaultKind::kOrder, row, columns[e - 1], columns[e], 0};
    }
  return {};
}

}  // namespace

void check_shape(const char* function, const EdgeShape& shape) {
  const auto fits = [](std::initializer_list<int64_t> factors) {
    int64_t product = 1;
    for (const int64_t factor : factors)
      if (__builtin_mul_overflow(product, factor, &product)) return false;
    return product < std::numeric_limits<int64_t>::max();
  };
  TORCH_CHECK_VALUE(shape.batch >= 0 && shape.heads >= 0 && shape.queries >= 0 && shape.keys >= 0, function,
                    ": expected sizes that are not negative; got ", to_string(shape));
  TORCH_CHECK_VALUE(shape.keys <= std::numeric_limits<int32_t>::max() &&
                        shape.queries <= std::numeric_limits<int32_t>::max(),
                    function, ": expected at most 2^31 - 1 queries and keys (columns are int32); got ",
                    to_string(shape));
  TORCH_CHECK_VALUE(fits({shape.batch, shape.heads, shape.queries, shape.keys}) &&
                        fits({shape.batch, shape.heads, shape.keys}),
                    function, ": the number of pairs of ", to_string(shape), " does not fit 63 bits");
}

void check_same_shape(const char* function, const EdgeShape& expected, const EdgeShape& found) {
  TORCH_CHECK_VALUE(expected == found, function, ": expected edges of shape ", to_string(expected), "; got ",
                    to_string(found));
}

void check_token_mask(const char* function, const char* name, const at::Tensor& mask, int64_t batch,
                      int64_t length) {
  TORCH_CHECK_VALUE(
      mask.dim() == 2 && mask.size(0) == batch && mask.size(1) == length && mask.scalar_type() == at::kBool,
      function, ": expected ", name, " [", batch, ", ", length,
      "] of dtype bool, true = token takes part; got ", mask.scalar_type(), " of shape ", mask.sizes());
}

void raise_fault(const char* function, const kernels::CsrFault& fault, const char* more) {
  using Kind = kernels::CsrFaultKind;
  TORCH_CHECK_VALUE(fault.kind != Kind::kFirstOffset, function, ": expected row_offsets[0] = 0; got ",
                    fault.found, more);
  TORCH_CHECK_VALUE(fault.kind != Kind::kLastOffset, function,
                    ": expected row_offsets[-1] = number of columns (", fault.limit, "); got ", fault.found,
                    more);
  TORCH_CHECK_VALUE(fault.kind != Kind::kFallingOffsets, function,
                    ": expected row_offsets that never fall; row ", fault.row, " has ", fault.found, " then ",
                    fault.next, more);
  TORCH_CHECK_INDEX(fault.kind != Kind::kColumn, function, ": expected columns in [0, ", fault.limit,
                    "); row ", fault.row, " has ", fault.found, more);
  TORCH_CHECK_VALUE(fault.kind != Kind::kOrder, function,
                    ": expected the columns of a row sorted and without repeats; row ", fault.row, " has ",
                    fault.found, " before ", fault.next, ". Sort and unique them first", more);
}

void check_csr_sizes(const char* function, const EdgeShape& shape, const at::Tensor& row_offsets,
                     const at::Tensor& col_indices) {
  TORCH_CHECK_TYPE(row_offsets.scalar_type() == at::kLong, function,
                   ": expected row_offsets of dtype int64; got ", row_offsets.scalar_type());
  TORCH_CHECK_TYPE(col_indices.scalar_type() == at::kInt, function,
                   ": expected col_indices of dtype int32; got ", col_indices.scalar_type());
  TORCH_CHECK_VALUE(row_offsets.dim() == 1 && row_offsets.size(0) == shape.rows() + 1, function,
                    ": expected row_offsets [B*H*L + 1] = [", shape.rows() + 1, "] for ", to_string(shape),
                    "; got ", row_offsets.sizes());
  TORCH_CHECK_VALUE(col_indices.dim() == 1, function, ": expected col_indices [E]; got ",
                    col_indices.sizes());
  // Before anything is copied: a tensor that was expanded may have any size.
  TORCH_CHECK_VALUE(col_indices.size(0) <= shape.pairs(), function, ": expected at most ", shape.pairs(),
                    " columns, one for each pair of ", to_string(shape), "; got ", col_indices.size(0));
  TORCH_CHECK_VALUE(row_offsets.device() == col_indices.device(), function,
                    ": expected row_offsets and col_indices on one device; got ", row_offsets.device(),
                    " and ", col_indices.device());
}

void check_csr(const char* function, const EdgeShape& shape, const at::Tensor& row_offsets,
               const at::Tensor& col_indices) {
  check_csr_sizes(function, shape, row_offsets, col_indices);
  const at::Tensor offsets_cpu = row_offsets.cpu().contiguous(), columns_cpu = col_indices.cpu().contiguous();
  raise_fault(function,
              first_fault(shape, offsets_cpu.const_data_ptr<int64_t>(), columns_cpu.const_data_ptr<int32_t>(),
                          columns_cpu.size(0)),
              "");
}

}  // namespace edgewise::graph
