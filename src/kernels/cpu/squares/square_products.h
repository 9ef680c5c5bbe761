// The two products of a square, compiled once per level (simd.h):
//   tile[j][i] = sum_d row_j[d] x_i[d]                 dot_rows: 16 rows against 16 others that lie
//   transposed sums[r][d] += sum_c weight[c][r] row_c[d]          add_rows: a weighted sum of 16 rows for
//   each of 16
// In the first a vector holds 16 queries, and numbers of the rows are spread over it as they are read, so
// keys and values are used where they lie; softmax over keys goes from vector to vector, never across one. In
// the second a vector holds 16 dimensions. Both keep as many sums in registers as there are.
//
// bf16 goes in pairs, whose products one instruction adds: neighbours in d for the first product, neighbours
// in c for the second.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/cpu/squares/square_lanes.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// What is multiplied at once.
template <typename T>
struct Factor {
  using Packed = T;
  using V = Vec<T>;
  static constexpr int kNumbers = 1;
  EDGEWISE_INLINE static V load(const T* from) { return V::load(from); }
  EDGEWISE_INLINE static V spread(T x) { return V::broadcast(x); }
  EDGEWISE_INLINE static V multiply_add(V a, V b, V sum) { return fma(a, b, sum); }
};
#if defined(__AVX512BF16__)
template <>
struct Factor<Bf16> {
  using Packed = uint32_t;  // two neighbours, the first in the low half
  using V = __m512bh;
  static constexpr int kNumbers = 2;
  EDGEWISE_INLINE static V load(const uint32_t* from) {
    return reinterpret_cast<V>(_mm512_loadu_si512(from));
  }
  EDGEWISE_INLINE static V spread(uint32_t x) {
    return reinterpret_cast<V>(_mm512_set1_epi32(static_cast<int>(x)));
  }
  EDGEWISE_INLINE static Vec<float> multiply_add(V a, V b, Vec<float> sum) {
    return {_mm512_dpbf16_ps(sum.v, a, b)};
  }
};
#endif
template <typename T>
using Packed = typename Factor<T>::Packed;

// Sixteen rows of one head.
template <typename T>
struct GroupRows {
  const T* base;
  int64_t stride;
};

// ---- transposing ----

#if defined(__AVX512F__)
// to[d][i] = rows[i][d] for 16 x 16 words of 32 bits.
EDGEWISE_INLINE void transpose_words(const uint32_t* rows, int64_t stride, uint32_t* to) {
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(rows + i * stride);
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
    for (int n = 0; n < 2; ++n) {
      a[i + 2 * n] = _mm512_unpacklo_epi64(b[i + n], b[i + n + 2]);
      a[i + 2 * n + 1] = _mm512_unpackhi_epi64(b[i + n], b[i + n + 2]);
    }
    // a[4 g + n]: word n of each of the four lanes, of rows 4 g .. 4 g + 4.
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
    const __m512i low01 = _mm512_shuffle_i32x4(a[n], a[n + 4], 0x88),
                  high01 = _mm512_shuffle_i32x4(a[n], a[n + 4], 0xDD),
                  low23 = _mm512_shuffle_i32x4(a[n + 8], a[n + 12], 0x88),
                  high23 = _mm512_shuffle_i32x4(a[n + 8], a[n + 12], 0xDD);
    _mm512_storeu_si512(to + 16 * n, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_storeu_si512(to + 16 * (n + 4), _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_storeu_si512(to + 16 * (n + 8), _mm512_shuffle_i32x4(low01, low23, 0xDD));
    _mm512_storeu_si512(to + 16 * (n + 12), _mm512_shuffle_i32x4(high01, high23, 0xDD));
  }
}
#endif

// x[d][i] = row_i[d], in pairs [d / 2][i] for bf16.
template <typename T>
EDGEWISE_INLINE void transpose_rows(const GroupRows<T>& rows, int64_t dim, Packed<T>* x) {
  constexpr int kNumbers = Factor<T>::kNumbers;
#if defined(__AVX512F__)
  if constexpr (sizeof(Packed<T>) == 4) {
    int64_t step = 0;
    for (; step + 16 <= dim / kNumbers; step += 16)
      transpose_words(reinterpret_cast<const uint32_t*>(rows.base) + step, rows.stride / kNumbers,
                      reinterpret_cast<uint32_t*>(x) + step * 16);
    for (; step < dim / kNumbers; ++step)  // 8 pairs
      for (int i = 0; i < 16; ++i)
        std::memcpy(x + step * 16 + i, rows.base + i * rows.stride + step * kNumbers, sizeof(Packed<T>));
    return;
  }
#endif
  for (int64_t step = 0; step < dim / kNumbers; ++step)
    for (int i = 0; i < 16; ++i)
      std::memcpy(x + step * 16 + i, rows.base + i * rows.stride + step * kNumbers, sizeof(Packed<T>));
}

// ---- dot products ----

// kRows rows, whose sums with 16 others fill the registers.
template <int kRows, typename T>
EDGEWISE_INLINE void dot_some_rows(const Packed<T>* rows, int64_t stride, int64_t steps, const Packed<T>* x,
                                   Accumulator<T>* tile) {
  using F = Factor<T>;
  using V = Vec<Accumulator<T>>;
  constexpr int kVectors = 16 / V::kWidth;
  V sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) sums[r][n] = V::zero();
  for (int64_t step = 0; step < steps; ++step, x += 16, ++rows) {
    typename F::V others[kVectors];
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) others[n] = F::load(x + n * V::kWidth);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const typename F::V number = F::spread(rows[r * stride]);
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) sums[r][n] = F::multiply_add(others[n], number, sums[r][n]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) sums[r][n].store(tile + r * 16 + n * V::kWidth);
}

// tile[j][i] = row_j . x_i
template <typename T>
[[gnu::noinline]] void dot_rows(const GroupRows<T>& group, int64_t dim, const Packed<T>* x,
                                Accumulator<T>* tile) {
  constexpr int kWidth = Vec<Accumulator<T>>::kWidth;
  constexpr int kRows = kWidth == 16 ? 16 : kWidth == 8 ? 4 : kWidth == 4 ? 2 : 1;
  const auto* const rows = reinterpret_cast<const Packed<T>*>(group.base);
  const int64_t stride = group.stride / Factor<T>::kNumbers, steps = dim / Factor<T>::kNumbers;
  for (int r = 0; r < 16; r += kRows)
    dot_some_rows<kRows, T>(rows + r * stride, stride, steps, x, tile + r * 16);
}

// ---- weighted sums ----

// Weights of a tile [16][16], and rows that they are for.
template <typename T>
struct TileWeights {
  const Packed<T>* at;
  int64_t by_term,
      by_sum;  // strides: from a term of a sum (pair of terms) to the next, from a sum to the next
};

template <int kSums, int kVectors, typename T>
EDGEWISE_INLINE void add_to_sums(const TileWeights<T>& weights, const Packed<T>* rows, int64_t stride,
                                 Accumulator<T>* sums, int64_t sum_stride) {
  using F = Factor<T>;
  using V = Vec<Accumulator<T>>;
  V totals[kSums][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kSums; ++r)
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) totals[r][n] = V::load(sums + r * sum_stride + n * V::kWidth);
  const Packed<T>* weight = weights.at;
#pragma GCC unroll 2
  for (int term = 0; term < 16 / F::kNumbers; ++term, weight += weights.by_term, rows += stride) {
    typename F::V row[kVectors];
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) row[n] = F::load(rows + n * V::kWidth);
#pragma GCC unroll 16
    for (int r = 0; r < kSums; ++r) {
      const typename F::V number = F::spread(weight[r * weights.by_sum]);
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) totals[r][n] = F::multiply_add(row[n], number, totals[r][n]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kSums; ++r)
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) totals[r][n].store(sums + r * sum_stride + n * V::kWidth);
}

// sums[r][:] += sum_c weight(c, r) row_c. Rows of bf16 are interleaved (interleave_rows). kBySum: the weights
// of one sum lie side by side, else those of one row.
template <bool kBySum, typename T>
[[gnu::noinline]] void add_rows(const Packed<T>* weights, const Packed<T>* rows, int64_t stride, int64_t dim,
                                Accumulator<T>* sums) {
  constexpr int kWidth = Vec<Accumulator<T>>::kWidth, kSums = kWidth == 16 ? 8 : 4;
  constexpr int64_t kTerms = 16 / Factor<T>::kNumbers;
  const int64_t by_term = kBySum ? 1 : 16, by_sum = kBySum ? kTerms : 1;
  for (int r = 0; r < 16; r += kSums) {
    const TileWeights<T> mine{weights + r * by_sum, by_term, by_sum};
    int64_t d = 0;
    for (; d + 2 * kWidth <= dim; d += 2 * kWidth)
      add_to_sums<kSums, 2, T>(mine, rows + d, stride, sums + r * dim + d, dim);
    if (d < dim) add_to_sums<kSums, 1, T>(mine, rows + d, stride, sums + r * dim + d, dim);
  }
}

// ---- rows and weights in the order that add_rows reads ----

// Rows c and c + 1 side by side, number by number; the others as they are. `room`: [16 * dim] numbers.
template <typename T>
struct SumRows {
  const Packed<T>* base;
  int64_t stride;
};
template <typename T>
EDGEWISE_INLINE SumRows<T> rows_to_add(const GroupRows<T>& rows, [[maybe_unused]] int64_t dim,
                                       [[maybe_unused]] Packed<T>* room) {
  if constexpr (Factor<T>::kNumbers == 1) {
    return {rows.base, rows.stride};
  } else {
#if defined(__AVX512BF16__)
    for (int c = 0; c < 16; c += 2)
      for (int64_t d = 0; d < dim; d += 16) {
        const auto words = [&](int64_t row) EDGEWISE_INLINE_LAMBDA {
          return _mm512_cvtepu16_epi32(
              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows.base + row * rows.stride + d)));
        };
        _mm512_storeu_si512(room + c / 2 * dim + d,
                            _mm512_or_si512(words(c), _mm512_slli_epi32(words(c + 1), 16)));
      }
#endif
    return {room, dim};
  }
}

// A tile of weights as add_rows<kBySum> reads it: line c holds the weights of row c, or with kBySum line r
// those of sum r. Lines are set two at a time.
template <bool kBySum, typename T>
EDGEWISE_INLINE void set_weights(Packed<T>* weights, int line, const Lanes<Accumulator<T>>& first,
                                 const Lanes<Accumulator<T>>& second) {
  if constexpr (Factor<T>::kNumbers == 1) {
    first.store(weights + line * 16);
    second.store(weights + (line + 1) * 16);
  } else {
#if defined(__AVX512BF16__)
    const __m512i low = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second.v[0].v, first.v[0].v));
    if constexpr (kBySum) {
      _mm512_storeu_si512(weights + line * 8, low);
    } else {
      const __m512i a = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(low)),
                    b = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(low, 1));
      _mm512_storeu_si512(weights + line * 8, _mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
    }
#endif
  }
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
