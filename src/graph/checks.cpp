#include "graph/checks.h"

#include <limits>

namespace edgewise::graph {

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

void check_csr(const char* function, const EdgeShape& shape, const at::Tensor& row_offsets,
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
  TORCH_CHECK_VALUE(row_offsets.device() == col_indices.device(), function,
                    ": expected row_offsets and col_indices on one device; got ", row_offsets.device(),
                    " and ", col_indices.device());
  const at::Tensor offsets_cpu = row_offsets.cpu().contiguous(), columns_cpu = col_indices.cpu().contiguous();
  const int64_t* offsets = offsets_cpu.const_data_ptr<int64_t>();
  const int32_t* columns = columns_cpu.const_data_ptr<int32_t>();
  const int64_t edges = columns_cpu.size(0);
  TORCH_CHECK_VALUE(offsets[0] == 0, function, ": expected row_offsets[0] = 0; got ", offsets[0]);
  TORCH_CHECK_VALUE(offsets[shape.rows()] == edges, function,
                    ": expected row_offsets[-1] = number of columns (", edges, "); got ",
                    offsets[shape.rows()]);
  for (int64_t row = 0; row < shape.rows(); ++row)
    TORCH_CHECK_VALUE(offsets[row] <= offsets[row + 1] && offsets[row + 1] <= edges, function,
                      ": expected row_offsets that never fall; row ", row, " has ", offsets[row], " then ",
                      offsets[row + 1]);
  for (int64_t row = 0; row < shape.rows(); ++row) {
    for (int64_t e = offsets[row]; e < offsets[row + 1]; ++e) {
      TORCH_CHECK_INDEX(columns[e] >= 0 && columns[e] < shape.keys, function, ": expected columns in [0, ",
                        shape.keys, "); row ", row, " has ", columns[e]);
      TORCH_CHECK_VALUE(e == offsets[row] || columns[e - 1] < columns[e], function,
                        ": expected the columns of a row sorted and without repeats; row ", row, " has ",
                        columns[e - 1], " before ", columns[e], ". Sort and unique them first");
    }
  }
}

}  // namespace edgewise::graph
