// The two things every kernel does with the rows that a list of indices names: dot products with one row, W
// at a time, and weighted sums. Compiled once per level (simd.h).
#pragma once

#include "kernels/cpu/simd.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// Rows of one head, picked by `indices`.
template <typename T>
struct Gathered {
  const T* base;
  int64_t row_stride;
  int64_t width;
  const int32_t* indices;  // [count], and more up to `known`
  int64_t count;
  int64_t known = 0;  // entries of `indices` that may be asked for ahead; 0: the rows fit into L2, never ask

  EDGEWISE_INLINE const T* row(int32_t index) const { return base + index * row_stride; }

  // Asks for the rows of the entries that follow e .. e + n at a distance. On a long sequence every row is a
  // miss; a core keeps few in flight on its own (its L1 fill buffers), and more when it asks into L2.
  EDGEWISE_INLINE void prefetch(int64_t e, int64_t n) const {
    constexpr int64_t kDistance = 48;
    const int64_t stop = e + kDistance + n < known ? e + kDistance + n : known;
    for (int64_t i = e + kDistance; i < stop; ++i) {
      const char* const bytes = reinterpret_cast<const char*>(row(indices[i]));
      for (int64_t b = 0; b < width * static_cast<int64_t>(sizeof(T)); b += 64)
        __builtin_prefetch(bytes + b, 0, 2);
    }
  }
};

// `known` for the entries from `begin` on when `stop` is the last of this call's: 0 when a head's rows stay
// in the cache anyway.
template <typename T>
EDGEWISE_INLINE int64_t known_entries(int64_t begin, int64_t stop, int64_t rows_of_head, int64_t row_stride) {
  constexpr int64_t kInCache = 1024 * 1024;
  return rows_of_head * row_stride * static_cast<int64_t>(sizeof(T)) > kInCache ? stop - begin : 0;
}

// Asks for a row that comes after many gathered ones: between two rows the hardware forgets that rows follow
// each other.
template <typename T>
EDGEWISE_INLINE void prefetch_row(const T* row, int64_t width) {
  const char* const bytes = reinterpret_cast<const char*>(row);
  for (int64_t b = 0; b < width * static_cast<int64_t>(sizeof(T)); b += 64) __builtin_prefetch(bytes + b);
}

// The fixed side of the dot products, kept in registers when its width is N vectors.
template <typename T, int N>
struct Left {
  using V = Vec<Accumulator<T>>;
  V row[N];

  EDGEWISE_INLINE Left(const T* from, int64_t) { load_row(from, row); }
  // W partial sums of the dot product.
  EDGEWISE_INLINE V products(const T* other) const {
    V right[N];
    load_row(other, right);
    V result = row[0] * right[0];
#pragma GCC unroll 16
    for (int n = 1; n < N; ++n) result = fma(row[n], right[n], result);
    return result;
  }
};

// Any width.
template <typename T>
struct Left<T, 0> {
  using V = Vec<Accumulator<T>>;
  const T* from;
  int64_t width;

  EDGEWISE_INLINE Left(const T* given, int64_t given_width) : from(given), width(given_width) {}
  EDGEWISE_INLINE V products(const T* other) const {
    V result = V::zero();
    int64_t d = 0;
    for (; d + V::kWidth <= width; d += V::kWidth)
      result = fma(V::load(from + d), V::load(other + d), result);
    if (d < width) {
      const int rest = static_cast<int>(width - d);
      result = fma(V::load_first(from + d, rest), V::load_first(other + d, rest), result);
    }
    return result;
  }
};

#if defined(__AVX512BF16__)
// Pairs of bf16 products in one instruction.
template <int N>
requires(N % 2 == 0 && N > 0) struct Left<Bf16, N> {
  __m512bh row[N / 2];

  EDGEWISE_INLINE static __m512bh load(const Bf16* from) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(from));
  }
  EDGEWISE_INLINE Left(const Bf16* from, int64_t) {
#pragma GCC unroll 16
    for (int n = 0; n < N / 2; ++n) row[n] = load(from + 32 * n);
  }
  EDGEWISE_INLINE VecF products(const Bf16* other) const {
    __m512 result = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int n = 0; n < N / 2; ++n) result = _mm512_dpbf16_ps(result, row[n], load(other + 32 * n));
    return {result};
  }
};
#endif

// The last dot products, fewer than W. Not inlined: it is longer than the loop that it ends.
template <int N, typename T>
[[gnu::noinline]] void last_dots(const Left<T, N>& left, const Gathered<T>& rows, int64_t first,
                                 Accumulator<T> factor, Accumulator<T>* out) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  const int rest = static_cast<int>(rows.count - first);
  int32_t indices[V::kWidth];
  for (int i = 0; i < rest; ++i) indices[i] = rows.indices[first + i];
  for (int i = rest; i % 4 != 0 && i < V::kWidth; ++i) indices[i] = indices[rest - 1];  // whole fours
  const auto products = [&](int i) EDGEWISE_INLINE_LAMBDA { return left.products(rows.row(indices[i])); };
  (V::broadcast(factor) * transpose_reduce<Acc>(products, rest)).store(out + first);
}

template <int N, typename T>
EDGEWISE_INLINE void dots_of_width(const T* left_row, const Gathered<T>& rows, Accumulator<T> factor,
                                   Accumulator<T>* out) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  const Left<T, N> left(left_row, rows.width);
  const V scale = V::broadcast(factor);
  int64_t e = 0;
  for (; e + V::kWidth <= rows.count; e += V::kWidth) {
    rows.prefetch(e, V::kWidth);
    const int32_t* indices = rows.indices + e;
    const auto products = [&](int i) EDGEWISE_INLINE_LAMBDA { return left.products(rows.row(indices[i])); };
    (scale * transpose_reduce<Acc>(products, V::kWidth)).store(out + e);
  }
  if (e >= rows.count) return;
  rows.prefetch(e, rows.count - e);
  last_dots(left, rows, e, factor, out);
}

// out[e] = factor * left . row e. Writes whole vectors: `out` has room for count rounded up to W.
template <typename T>
[[gnu::noinline]] void dots(const T* left, const Gathered<T>& rows, Accumulator<T> factor,
                            Accumulator<T>* out) {
  constexpr int kWidth = Vec<Accumulator<T>>::kWidth;
  switch (rows.width) {
    case 1 * kWidth:
      return dots_of_width<1>(left, rows, factor, out);
    case 2 * kWidth:
      return dots_of_width<2>(left, rows, factor, out);
    case 4 * kWidth:
      return dots_of_width<4>(left, rows, factor, out);
    case 8 * kWidth:
      return dots_of_width<8>(left, rows, factor, out);
    default:
      return dots_of_width<0>(left, rows, factor, out);
  }
}

// The same for a width that is known to be N vectors; N = 0: any.
template <int N, typename T>
EDGEWISE_INLINE void dots_of(const T* left, const Gathered<T>& rows, Accumulator<T> factor,
                             Accumulator<T>* out) {
  if constexpr (N == 0)
    dots(left, rows, factor, out);
  else
    dots_of_width<N>(left, rows, factor, out);
}

// What becomes of a weighted sum: out = factor * sum. A sum may come in segments;
// all but the last leave `partial` behind, whole vectors in the order of load_row.
template <typename T>
struct SumTarget {
  T* out;
  Accumulator<T> factor = 1;
  Accumulator<T>* partial = nullptr;  // [width rounded up to W], for sums in segments
  bool first = true, last = true;     // segment
};

// Elements d .. d + N*W of the sum, in registers; several edges in flight so that additions do not wait for
// each other.
template <int N, typename T>
EDGEWISE_INLINE void weighted_sum_block(const Accumulator<T>* coefficients, const Gathered<T>& rows,
                                        int64_t d, const SumTarget<T>& target) {
  using V = Vec<Accumulator<T>>;
  constexpr int kEdges = N >= 8 ? 1 : N >= 4 ? 2 : 4;
  V total[kEdges][N];
#pragma GCC unroll 16
  for (int u = 0; u < kEdges; ++u)
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) total[u][n] = V::zero();
  if (!target.first)
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) total[0][n] = V::load(target.partial + d + n * V::kWidth);
  int64_t e = 0;
  const T* base = rows.base + d;
  for (; e + kEdges <= rows.count; e += kEdges) {
    if (d == 0) rows.prefetch(e, kEdges);
#pragma GCC unroll 16
    for (int u = 0; u < kEdges; ++u) {
      V row[N];
      load_row(base + rows.indices[e + u] * rows.row_stride, row);
      const V coefficient = V::broadcast(coefficients[e + u]);
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) total[u][n] = fma(coefficient, row[n], total[u][n]);
    }
  }
  if (d == 0) rows.prefetch(e, rows.count - e);
  for (; e < rows.count; ++e) {
    V row[N];
    load_row(base + rows.indices[e] * rows.row_stride, row);
    const V coefficient = V::broadcast(coefficients[e]);
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) total[0][n] = fma(coefficient, row[n], total[0][n]);
  }
  V result[N];
  const V factor = V::broadcast(target.factor);
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) {
    V sum = total[0][n];
#pragma GCC unroll 16
    for (int u = 1; u < kEdges; ++u) sum = sum + total[u][n];
    if (!target.last) sum.store(target.partial + d + n * V::kWidth);
    result[n] = factor * sum;
  }
  if (!target.last) return;
  store_row(target.out + d, result);
}

// The last elements, fewer than W.
template <typename T>
EDGEWISE_INLINE void weighted_sum_rest(const Accumulator<T>* coefficients, const Gathered<T>& rows, int64_t d,
                                       const SumTarget<T>& target) {
  using V = Vec<Accumulator<T>>;
  const int rest = static_cast<int>(rows.width - d);
  V total = target.first ? V::zero() : V::load(target.partial + d);
  for (int64_t e = 0; e < rows.count; ++e)
    total = fma(V::broadcast(coefficients[e]), V::load_first(rows.row(rows.indices[e]) + d, rest), total);
  if (!target.last) return total.store(target.partial + d);
  fma(V::broadcast(target.factor), total, V::zero()).store_first(target.out + d, rest);
}

// The sum over e of coefficients[e] * row e.
template <typename T>
[[gnu::noinline]] void weighted_sum(const Accumulator<T>* coefficients, const Gathered<T>& rows,
                                    const SumTarget<T>& target) {
  constexpr int kWidth = Vec<Accumulator<T>>::kWidth;
  int64_t d = 0;
  for (; rows.width - d >= 8 * kWidth; d += 8 * kWidth) weighted_sum_block<8>(coefficients, rows, d, target);
  if (rows.width - d >= 4 * kWidth) weighted_sum_block<4>(coefficients, rows, d, target), d += 4 * kWidth;
  if (rows.width - d >= 2 * kWidth) weighted_sum_block<2>(coefficients, rows, d, target), d += 2 * kWidth;
  if (rows.width - d >= kWidth) weighted_sum_block<1>(coefficients, rows, d, target), d += kWidth;
  if (rows.width > d) weighted_sum_rest(coefficients, rows, d, target);
}

// The same for a width that is known to be N vectors; N = 0: any.
template <int N, typename T>
EDGEWISE_INLINE void sum_of(const Accumulator<T>* coefficients, const Gathered<T>& rows,
                            const SumTarget<T>& target) {
  if constexpr (N == 0)
    weighted_sum(coefficients, rows, target);
  else
    weighted_sum_block<N>(coefficients, rows, 0, target);
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
