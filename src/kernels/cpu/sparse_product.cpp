// gather_sum serves every sum of the backward pass: rows in CSR order (dq, dQ^) and columns in CSC order (dk,
// dv, dT). Each output row has one owner, so there are no atomics and the result does not depend on the
// number of threads.
#include "kernels/cpu/sparse_product.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/dot.h"

namespace edgewise::kernels::cpu {

template <typename T>
void gather_sum(const GatherSumParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  std::vector<Acc> sum(static_cast<size_t>(params.width));
  const Acc factor = static_cast<Acc>(params.factor);
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t head = row / params.rows_per_head;
    const T* dense = params.dense.head(head / params.heads, head % params.heads);
    std::fill(sum.begin(), sum.end(), Acc{0});
    for (int64_t e = params.offsets[row]; e < params.offsets[row + 1]; ++e) {
      const Acc coefficient = factor * params.coefficients[params.ids ? params.ids[e] : e];
      add_scaled(sum.data(), coefficient, dense + params.indices[e] * params.dense.row_stride, params.width);
    }
    T* out = params.out + row * params.width;
    for (int64_t d = 0; d < params.width; ++d) {
      const Acc before = params.accumulate ? to_accumulator(out[d]) : Acc{0};
      out[d] = from_accumulator<T>(before + sum[static_cast<size_t>(d)]);
    }
  }
}

template <typename T>
void edge_dot(const EdgeDotParams<T>& params, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t head = row / params.edges.queries, query = row % params.edges.queries;
    const T* left = params.left.head(head / params.edges.heads, head % params.edges.heads) +
                    query * params.left.row_stride;
    const T* right = params.right.head(head / params.edges.heads, head % params.edges.heads);
    for (int64_t e = params.edges.row_offsets[row]; e < params.edges.row_offsets[row + 1]; ++e)
      params.out[e] = dot(left, right + params.edges.col_indices[e] * params.right.row_stride, params.width);
  }
}

#define EDGEWISE_INSTANTIATE(T)                                             \
  template void gather_sum<T>(const GatherSumParams<T>&, int64_t, int64_t); \
  template void edge_dot<T>(const EdgeDotParams<T>&, int64_t, int64_t);
EDGEWISE_INSTANTIATE(float)
EDGEWISE_INSTANTIATE(double)
EDGEWISE_INSTANTIATE(Bf16)
#undef EDGEWISE_INSTANTIATE

}  // namespace edgewise::kernels::cpu
