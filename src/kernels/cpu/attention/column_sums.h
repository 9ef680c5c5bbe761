// Sums of a head's columns over its rows in their own order: sum[column] += coefficient * row of the edge.
// Compiled once per level (simd.h).
#pragma once

#include "kernels/cpu/attention/edge_bundles.h"
#include "kernels/cpu/attention/gathered_rows.h"
#include "kernels/cpu/attention/group_products.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// Columns of one head, and the elements d .. d + width of their sums.
struct ColumnRange {
  RowPlace place;
  int64_t begin, end, d, width;
};

// Whether runs of a group of rows are taken in the order of their keys, so that their sums are in L1
// (edge_bundles.h). A sum is then wanted again soon after it was stored: the one CPU with AVX-512 BF16 that
// was measured takes half the time for it, an older one with AVX-512 took a half more.
#if defined(__AVX512BF16__)
inline constexpr bool kSumsInRuns = true;
#else
inline constexpr bool kSumsInRuns = false;
#endif

// out = factor * sum for `count` columns; N = 0: of the first `width` elements, fewer than one vector.
template <int N, typename T>
EDGEWISE_INLINE void store_sums(const Accumulator<T>* sum, int64_t count, Accumulator<T> factor,
                                int64_t width, T* out, int64_t stride) {
  using V = Vec<Accumulator<T>>;
  constexpr int kVectors = N > 0 ? N : 1;
  for (int64_t j = 0; j < count; ++j, sum += kVectors * V::kWidth, out += stride) {
    V result[kVectors];
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) result[n] = V::broadcast(factor) * V::load(sum + n * V::kWidth);
    if constexpr (N > 0)
      store_row(out, result);
    else
      result[0].store_first(out, static_cast<int>(width));
  }
}

// sum[column] += coefficient * left for edges of one row; `sums` would be that of column 0.
template <int N, typename Acc>
struct RowToSums {
  using V = Vec<Acc>;
  V left[N];
  Acc* sums;

  EDGEWISE_INLINE void add(V coefficient, int32_t column) const {
    Acc* sum = sums + int64_t{column} * (N * V::kWidth);
    asm("" : "+r"(sum));  // in one register, as NamedRows::row
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n)
      fma(coefficient, left[n], V::load(sum + n * V::kWidth)).store(sum + n * V::kWidth);
  }
  // A whole bundle.
  EDGEWISE_INLINE void add_bundle(const Acc* coefficients, const int32_t* columns) const {
#pragma GCC unroll 4
    for (int e = 0; e < kBundle; e += V::kWidth)
      for_lanes(V::load(coefficients + e),
                [&](int i, V coefficient) EDGEWISE_INLINE_LAMBDA { add(coefficient, columns[e + i]); });
  }
  // Edges of which only those of the columns begin .. end count.
  EDGEWISE_INLINE void add_some(const Acc* coefficients, const int32_t* columns, int64_t count, int64_t begin,
                                int64_t end) const {
    for (int64_t e = 0; e < count; ++e)
      if (columns[e] >= begin && columns[e] < end) add(V::broadcast(coefficients[e]), columns[e]);
  }
};

// Sums of N vectors of a range of columns, to which groups of rows are added run by run.
template <int N, typename Acc>
class HeadSums {
  using V = Vec<Acc>;
  static constexpr int64_t kStride = N * V::kWidth;

 public:
  static constexpr int64_t kBytes = kStride * static_cast<int64_t>(sizeof(Acc));  // of a sum
  explicit HeadSums(const ColumnRange& range) : range_(range), sums_(1, kStride * (range.end - range.begin)) {
    for (int64_t i = 0; i < (range.end - range.begin) * kStride; i += V::kWidth) V::zero().store(all() + i);
  }
  EDGEWISE_INLINE Acc* all() const { return sums_.buffer(0); }  // [columns of the range, N * W]

  // `columns`, `coefficients`: of the group's edges. ask(place) is called for every bundle but the rests.
  template <typename T, typename Ask>
  EDGEWISE_INLINE void add_group(const RowGroup& group, const GroupEdges& own, const int32_t* columns,
                                 const Acc* coefficients, const OwnRows<T>& lefts, const Ask& ask) const {
    RowToSums<N, Acc> row;
    row.sums = all() - range_.begin * kStride;
    int64_t place = 0;
    const auto add_runs = [&](const Run* run, int64_t count, int64_t run_edges) EDGEWISE_INLINE_LAMBDA {
      for (const Run* const end = run + count; run < end; ++run) {
        const int32_t *const list = columns + run->first, *const next = columns + run[1].first;
        const Acc *const numbers = coefficients + run->first, *const next_numbers =
                                                                  coefficients + run[1].first;
        load_row(lefts.row(run->number), row.left);
        if (list[0] >= range_.begin && list[run_edges - 1] < range_.end)
          for (int64_t e = 0; e < run_edges; e += kBundle) {
            __builtin_prefetch(next + e);
            __builtin_prefetch(next_numbers + e);
            ask(place + e);
            row.add_bundle(numbers + e, list + e);
          }
        else
          row.add_some(numbers, list, run_edges, range_.begin, range_.end);
        place += run_edges;
      }
    };
    add_runs(own.run(0), own.runs(), own.run_edges());
    add_runs(own.tail_bundle(0), own.tail_bundles(), kBundle);
    for (int n = 0; n < group.count; ++n) {
      const int64_t e = group.rows[n].begin - own.first_edge() + group.rows[n].bundled();
      load_row(lefts.row(n), row.left);
      row.add_some(coefficients + e, columns + e, group.rows[n].rest(), range_.begin, range_.end);
    }
  }

 private:
  ColumnRange range_;
  Scratch<Acc> sums_;
};

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
