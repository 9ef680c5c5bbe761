// Products of per-edge values with dense rows, compiled once per CPU level (simd.h).
//
// gather_sum is the rows' side of a gradient (dQ^ = G T), scatter_sum the columns' side (dT = G^T Q^, dK, dV)
// of the same edges in the same order. Each output row has one owner, so there are no atomics and the result
// does not depend on the number of threads.
#include "kernels/cpu/attention/column_sums.h"
#include "kernels/cpu/attention/gathered_rows.h"
#include "kernels/cpu/attention/level_rows.h"
#include "kernels/cpu/levels.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {
namespace {

template <typename T>
void gather_sum(const GatherSumParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  for_rows(params.heads, params.rows_per_head, row_begin, row_end, [&](int64_t row, const RowPlace& place) {
    const int64_t begin = params.offsets[row], degree = params.offsets[row + 1] - begin;
    const Gathered<T> rows{
        params.dense.head(place.batch, place.head),
        params.dense.row_stride,
        params.width,
        params.indices + begin,
        degree,
        known_entries<T>(begin, params.offsets[row_end], params.dense_rows, params.dense.row_stride)};
    weighted_sum<T>(params.coefficients + begin, rows,
                    {params.out + row * params.width, static_cast<Acc>(params.factor)});
  });
}

// Columns whose sums are kept at a time, `bytes` each: as many as the shared cache holds. A row visits every
// block, so that more and smaller ones never paid; and each visit finds enough edges that all visits together
// cost no more than the edges do.
inline int64_t block_columns(const CsrView& edges, int64_t head_index, int64_t bytes) {
  constexpr int64_t kCache = int64_t{16} << 20;
  constexpr double kLeastVisit = 8;  // edges
  const int64_t* offsets = edges.row_offsets + head_index * edges.queries;
  const int64_t count = offsets[edges.queries] - offsets[0];
  if (count == 0) return edges.keys;
  const double columns_per_edge =
      static_cast<double>(edges.queries) * static_cast<double>(edges.keys) / static_cast<double>(count);
  const int64_t least = static_cast<int64_t>(kLeastVisit * columns_per_edge);
  const int64_t columns = least > kCache / bytes ? least : kCache / bytes;
  return columns < edges.keys ? columns : edges.keys;
}

// Bytes of a sum up to which W edges are taken at a time; with wider ones that was slower.
inline constexpr int64_t kBundledBytes = 128;

// The rows of a head in groups. Groups, runs and their order are the head's, whatever the range of columns
// is, so that a column's sum does not depend on the range.
template <int N, typename T>
void scatter_sum_in_runs(const ScatterSumParams<T>& params, const ColumnRange& range) {
  using Acc = Accumulator<T>;
  const CsrView& edges = params.edges;
  const HeadSums<N, Acc> sums(range);
  const int64_t first_row = range.place.head_index * edges.queries, end_row = first_row + edges.queries;
  const int bundles = run_bundles(edges, range.place.head_index, HeadSums<N, Acc>::kBytes);
  GroupEdges own(group_buffer(edges.row_offsets, first_row, end_row, group_edges(1)));
  const T* const dense = params.dense.head(range.place.batch, range.place.head) + range.d;
  for_groups(edges, first_row, end_row, kGroupRows, group_edges(1),
             [&](const RowGroup& group) EDGEWISE_INLINE_LAMBDA {
               own.take(group, edges.col_indices, edges.keys, bundles);
               const Acc* const coefficients = params.coefficients + own.first_edge();
               const int32_t* const columns = edges.col_indices + own.first_edge();
               // Lists and numbers of the next group lie behind this one's, and come from beyond L2.
               const GroupRow& last = group.rows[group.count - 1];
               const int64_t size = last.begin + last.degree - own.first_edge();
               const int64_t ahead = own.first_edge() + 2 * size > edges.row_offsets[end_row] ? 0 : size;
               sums.add_group(
                   group, own, columns, coefficients,
                   OwnRows<T>{dense + group.place.query * params.dense.row_stride, params.dense.row_stride},
                   [&](int64_t place) EDGEWISE_INLINE_LAMBDA {
                     __builtin_prefetch(columns + ahead + place, 0, 2);
                     __builtin_prefetch(coefficients + ahead + place, 0, 2);
                   });
             });
  T* const out = params.out + (range.place.head_index * edges.keys + range.begin) * params.width + range.d;
  store_sums<N>(sums.all(), range.end - range.begin, static_cast<Acc>(params.factor), range.width, out,
                params.width);
}

// N vectors of the sums; N = 0: the last elements, fewer than one vector.
template <int N, typename T>
void scatter_sum_block(const ScatterSumParams<T>& params, const ColumnRange& range) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  constexpr int kVectors = N > 0 ? N : 1;
  constexpr int64_t kStride = kVectors * V::kWidth;
  constexpr int64_t kAhead = 32;  // edges; their sums are asked for before they are wanted
  const CsrView& edges = params.edges;
  const int rest = static_cast<int>(range.width);
  const int64_t block =
      block_columns(edges, range.place.head_index, kStride * static_cast<int64_t>(sizeof(Acc)));
  if constexpr (N > 0 && kSumsInRuns)
    if (block == edges.keys && rows_meet(edges, range.place.head_index))
      return scatter_sum_in_runs<N>(params, range);
  const Scratch<Acc> sums(1, kStride * (block < range.end - range.begin ? block : range.end - range.begin));
  // Where each row's edges of the next block begin, counted from the row's first edge.
  const Scratch<int32_t> next(1, edges.queries);
  const int64_t* offsets = edges.row_offsets + range.place.head_index * edges.queries;
  for (int64_t row = 0; row < edges.queries; ++row) {
    const int32_t* first = edges.col_indices + offsets[row];
    int64_t low = 0, high = range.begin > 0 ? offsets[row + 1] - offsets[row] : 0;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (first[middle] < range.begin)
        low = middle + 1;
      else
        high = middle;
    }
    next.buffer(0)[row] = static_cast<int32_t>(low);
  }
  const int64_t last = offsets[edges.queries];
  const T* const dense = params.dense.head(range.place.batch, range.place.head) + range.d;
  for (int64_t begin = range.begin; begin < range.end; begin += block) {
    const int64_t end = begin + block < range.end ? begin + block : range.end;
    Acc* const all = sums.buffer(0);
    for (int64_t i = 0; i < (end - begin) * kStride; i += V::kWidth) V::zero().store(all + i);
    for (int64_t row = 0; row < edges.queries; ++row) {
      int64_t e = offsets[row] + next.buffer(0)[row];
      const int64_t stop = offsets[row + 1];
      prefetch_row(dense + (row + 1) * params.dense.row_stride, range.width);
      V left[kVectors];
      if constexpr (N > 0)
        load_row(dense + row * params.dense.row_stride, left);
      else
        left[0] = V::load_first(dense + row * params.dense.row_stride, rest);
      const auto add = [&](int64_t edge, V coefficient, int64_t ahead) EDGEWISE_INLINE_LAMBDA {
        if (ahead >= begin && ahead < end)
#pragma GCC unroll 16
          for (int64_t i = 0; i < kStride; i += 64 / static_cast<int64_t>(sizeof(Acc)))
            __builtin_prefetch(all + (ahead - begin) * kStride + i, 1, 3);
        Acc* const sum = all + (edges.col_indices[edge] - begin) * kStride;
#pragma GCC unroll 16
        for (int n = 0; n < kVectors; ++n)
          fma(coefficient, left[n], V::load(sum + n * V::kWidth)).store(sum + n * V::kWidth);
      };
      // W edges at a time: their coefficients are spread over the lanes without a load each.
      if constexpr (kStride * sizeof(Acc) <= kBundledBytes)
        for (; e + V::kWidth <= stop && e + V::kWidth + kAhead <= last &&
               edges.col_indices[e + V::kWidth - 1] < end;
             e += V::kWidth)
          for_lanes(V::load(params.coefficients + e), [&](int i, V coefficient) EDGEWISE_INLINE_LAMBDA {
            add(e + i, coefficient, edges.col_indices[e + i + kAhead]);
          });
      for (; e < stop && edges.col_indices[e] < end; ++e)
        add(e, V::broadcast(params.coefficients[e]), e + kAhead < last ? edges.col_indices[e + kAhead] : end);
      next.buffer(0)[row] = static_cast<int32_t>(e - offsets[row]);
    }
    store_sums<N>(all, end - begin, static_cast<Acc>(params.factor), range.width,
                  params.out + (range.place.head_index * edges.keys + begin) * params.width + range.d,
                  params.width);
  }
}

template <typename T>
void scatter_sum(const ScatterSumParams<T>& params, int64_t column_begin, int64_t column_end) {
  constexpr int64_t kWidth = Vec<Accumulator<T>>::kWidth;
  const CsrView& edges = params.edges;
  for (int64_t column = column_begin; column < column_end;) {
    ColumnRange range;
    range.place.head_index = column / edges.keys;
    range.place.batch = range.place.head_index / edges.heads;
    range.place.head = range.place.head_index % edges.heads;
    const int64_t first = range.place.head_index * edges.keys;
    range.begin = column - first;
    range.end = column_end - first < edges.keys ? column_end - first : edges.keys;
    range.d = 0;
    for (int64_t left = params.width; left > 0; left = params.width - range.d) {
      range.width = left >= 8 * kWidth   ? 8 * kWidth
                    : left >= 4 * kWidth ? 4 * kWidth
                    : left >= 2 * kWidth ? 2 * kWidth
                    : left >= kWidth     ? kWidth
                                         : left;
      switch (range.width / kWidth) {
        case 8:
          scatter_sum_block<8>(params, range);
          break;
        case 4:
          scatter_sum_block<4>(params, range);
          break;
        case 2:
          scatter_sum_block<2>(params, range);
          break;
        case 1:
          scatter_sum_block<1>(params, range);
          break;
        default:
          scatter_sum_block<0>(params, range);
      }
      range.d += range.width;
    }
    column = first + range.end;
  }
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
  return {gather_sum<T>, scatter_sum<T>, edge_dot<T>};
}
template ProductKernels<float> product_kernels<float>();
template ProductKernels<Bf16> product_kernels<Bf16>();
#if defined(EDGEWISE_PORTABLE_LEVEL)
template ProductKernels<double> product_kernels<double>();
#endif

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
