// Products of per-edge values with dense rows, compiled once per CPU level (simd.h).
//
// gather_sum serves both sides of a learner's gradient: rows in CSR order (dQ^ = G T) and columns in CSC
// order (dT = G^T Q^). Each output row has one owner, so there are no atomics and the result does not depend
// on the number of threads.
#include "kernels/cpu/gathered_rows.h"
#include "kernels/cpu/level_rows.h"
#include "kernels/cpu/levels.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {
namespace {

template <typename T>
void gather_sum(const GatherSumParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  const Scratch<Acc> scratch(1, params.ids ? largest_degree(params.offsets, row_begin, row_end) : 0);
  for_rows(params.heads, params.rows_per_head, row_begin, row_end, [&](int64_t row, const RowPlace& place) {
    const int64_t begin = params.offsets[row], degree = params.offsets[row + 1] - begin;
    const Acc* coefficients = params.coefficients + begin;
    if (params.ids) {
      Acc* ordered = scratch.buffer(0);
      for (int64_t e = 0; e < degree; ++e) ordered[e] = params.coefficients[params.ids[begin + e]];
      coefficients = ordered;
    }
    const Gathered<T> rows{
        params.dense.head(place.batch, place.head),
        params.dense.row_stride,
        params.width,
        params.indices + begin,
        degree,
        known_entries<T>(begin, params.offsets[row_end], params.dense_rows, params.dense.row_stride)};
    weighted_sum<T>(coefficients, rows,
                    {params.out + row * params.width, static_cast<Acc>(params.factor), params.accumulate});
  });
}

template <typename T>
void edge_dot(const EdgeDotParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  const CsrView& edges = params.edges;
  const Scratch<Acc> scratch(1, largest_degree(edges.row_offsets, row_begin, row_end));
  Acc* products = scratch.buffer(0);
  for_rows(edges.heads, edges.queries, row_begin, row_end, [&](int64_t row, const RowPlace& place) {
    const int64_t begin = edges.row_offsets[row], degree = edges.row_offsets[row + 1] - begin;
    const T* left = params.left.head(place.batch, place.head) + place.query * params.left.row_stride;
    dots(left,
         {params.right.head(place.batch, place.head), params.right.row_stride, params.width,
          edges.col_indices + begin, degree,
          known_entries<T>(begin, edges.row_offsets[row_end], edges.keys, params.right.row_stride)},
         Acc{1}, products);
    for (int64_t e = 0; e < degree; ++e) params.out[begin + e] = products[e];
  });
}

}  // namespace

template <typename T>
ProductKernels<T> product_kernels() {
  return {gather_sum<T>, edge_dot<T>};
}
template ProductKernels<float> product_kernels<float>();
template ProductKernels<Bf16> product_kernels<Bf16>();
#if defined(EDGEWISE_PORTABLE_LEVEL)
template ProductKernels<double> product_kernels<double>();
#endif

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
