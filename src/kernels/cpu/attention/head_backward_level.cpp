// Both passes of the backward over a head's edges, group of rows by group of rows, compiled once per CPU
// level (simd.h).
//
// The two numbers per edge that go from the rows to the columns stay in the cache, and a group's list comes
// from memory once for dq, dk and dv, whose runs are sorted once for both. Rows and sums are those of the two
// passes, bit by bit.
#include "kernels/cpu/attention/head_backward.h"

#include <type_traits>

#include "kernels/cpu/attention/column_sums.h"
#include "kernels/cpu/attention/level_rows.h"
#include "kernels/cpu/levels.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {
namespace {

template <int N, typename T>
void backward_head(const HeadBackwardParams<T>& params, int64_t head_index) {
  using Acc = Accumulator<T>;
  const auto backward_rows = attention_kernels<T>().backward_rows;
  AttentionBackwardParams<T> rows = params.rows;
  const CsrView& edges = rows.edges;
  const ColumnRange range{
      {head_index / edges.heads, head_index % edges.heads, head_index, 0}, 0, edges.keys, 0, rows.head_dim};
  const HeadSums<N, Acc> key_sums(range), value_sums(range);
  const int64_t first_row = head_index * edges.queries, end_row = first_row + edges.queries;
  const int bundles = run_bundles(edges, head_index, HeadSums<N, Acc>::kBytes);
  const int64_t most = group_buffer(edges.row_offsets, first_row, end_row, group_edges(1));
  GroupEdges own(most);
  const Scratch<Acc> numbers(2, most);
  const T* const queries = rows.query.head(range.place.batch, range.place.head);
  for_groups(
      edges, first_row, end_row, kGroupRows, group_edges(1),
      [&](const RowGroup& group) EDGEWISE_INLINE_LAMBDA {
        const int64_t first = group.rows[0].begin, row = group.rows[0].row;
        rows.weights = numbers.buffer(0) - first;
        rows.logit_grads = numbers.buffer(1) - first;
        backward_rows(rows, row, row + group.count);
        own.take(group, edges.col_indices, edges.keys, bundles);
        const int32_t* const columns = edges.col_indices + first;
        const auto nothing = [](int64_t) EDGEWISE_INLINE_LAMBDA {};
        key_sums.add_group(
            group, own, columns, numbers.buffer(1),
            OwnRows<T>{queries + group.place.query * rows.query.row_stride, rows.query.row_stride}, nothing);
        value_sums.add_group(group, own, columns, numbers.buffer(0),
                             OwnRows<T>{rows.grad_output + row * rows.value_dim, rows.value_dim}, nothing);
      });
  const int64_t first_key = head_index * edges.keys;
  store_sums<N>(key_sums.all(), edges.keys, static_cast<Acc>(rows.scale), rows.head_dim,
                params.grad_key + first_key * rows.head_dim, rows.head_dim);
  store_sums<N>(value_sums.all(), edges.keys, Acc{1}, rows.value_dim,
                params.grad_value + first_key * rows.value_dim, rows.value_dim);
}

}  // namespace

template <typename T>
bool joins_passes(const AttentionBackwardParams<T>& params, int64_t head_index) {
  constexpr int64_t kWidth = Vec<Accumulator<T>>::kWidth;
  // Keys, values and both sums are gone through for every group: bytes of them that stay in a core's own
  // cache beside the group's edges. With twice as many the two passes were faster by a fifth.
  constexpr int64_t kOwnCache = 1024 * 1024;
  const int64_t head_bytes =
      2 * params.edges.keys * (params.head_dim + params.value_dim) * static_cast<int64_t>(sizeof(T));
  return kSumsInRuns && head_bytes <= kOwnCache && std::is_same_v<T, float> &&
         params.head_dim == params.value_dim &&
         (params.head_dim == 2 * kWidth || params.head_dim == 4 * kWidth) &&
         rows_meet(params.edges, head_index);
}

template <typename T>
void backward_heads([[maybe_unused]] const HeadBackwardParams<T>& params, [[maybe_unused]] int64_t head_begin,
                    [[maybe_unused]] int64_t head_end) {
  [[maybe_unused]] constexpr int64_t kWidth = Vec<Accumulator<T>>::kWidth;
  if constexpr (kSumsInRuns && std::is_same_v<T, float>) {
    for (int64_t head = head_begin; head < head_end; ++head)
      params.rows.head_dim == 2 * kWidth ? backward_head<2>(params, head) : backward_head<4>(params, head);
  }
}

template bool joins_passes<float>(const AttentionBackwardParams<float>&, int64_t);
template void backward_heads<float>(const HeadBackwardParams<float>&, int64_t, int64_t);
template bool joins_passes<Bf16>(const AttentionBackwardParams<Bf16>&, int64_t);
template void backward_heads<Bf16>(const HeadBackwardParams<Bf16>&, int64_t, int64_t);
#if defined(EDGEWISE_PORTABLE_LEVEL)
template bool joins_passes<double>(const AttentionBackwardParams<double>&, int64_t);
template void backward_heads<double>(const HeadBackwardParams<double>&, int64_t, int64_t);
#endif

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
