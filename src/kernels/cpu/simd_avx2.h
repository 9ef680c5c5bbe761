// AVX2 with FMA: 8 lanes of fp32. bf16 is widened by a shift, two vectors from one load.
#pragma once

#include <immintrin.h>

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

template <typename Acc>
struct Vec;

template <>
struct Vec<float> {
  static constexpr int kWidth = 8;
  __m256 v;

  EDGEWISE_INLINE static Vec zero() { return {_mm256_setzero_ps()}; }
  EDGEWISE_INLINE static Vec broadcast(float x) { return {_mm256_set1_ps(x)}; }
  EDGEWISE_INLINE static __m256i first(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  EDGEWISE_INLINE static Vec widen(__m128i bits) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
  }
  // bf16 bits in the low halves of 32-bit lanes. Rounds to nearest even; NaN stays NaN.
  EDGEWISE_INLINE __m256i rounded() const {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
  }
  EDGEWISE_INLINE __m128i narrow() const {
    const __m256i low = rounded();
    return _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  }

  EDGEWISE_INLINE static Vec load(const float* from) { return {_mm256_loadu_ps(from)}; }
  EDGEWISE_INLINE static Vec load(const Bf16* from) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  EDGEWISE_INLINE static Vec load_first(const float* from, int count) {
    return {_mm256_maskload_ps(from, first(count))};
  }
  EDGEWISE_INLINE static Vec load_first(const Bf16* from, int count) {
    alignas(16) Bf16 lanes[8] = {};
    for (int lane = 0; lane < count; ++lane) lanes[lane] = from[lane];
    return load(lanes);
  }
  EDGEWISE_INLINE void store(float* to) const { _mm256_storeu_ps(to, v); }
  EDGEWISE_INLINE void store(Bf16* to) const { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), narrow()); }
  EDGEWISE_INLINE void store_first(float* to, int count) const { _mm256_maskstore_ps(to, first(count), v); }
  EDGEWISE_INLINE void store_first(Bf16* to, int count) const {
    alignas(16) Bf16 lanes[8];
    store(lanes);
    for (int lane = 0; lane < count; ++lane) to[lane] = lanes[lane];
  }
  EDGEWISE_INLINE friend Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  EDGEWISE_INLINE friend Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
  EDGEWISE_INLINE friend Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
  EDGEWISE_INLINE friend Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
};
using VecF = Vec<float>;

EDGEWISE_INLINE VecF fma(VecF a, VecF b, VecF c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
EDGEWISE_INLINE VecF max(VecF a, VecF b) {
  return {_mm256_max_ps(a.v, b.v)};
}
EDGEWISE_INLINE VecF keep_first(VecF v, int count, VecF other) {
  return {_mm256_blendv_ps(other.v, v.v, _mm256_castsi256_ps(VecF::first(count)))};
}
EDGEWISE_INLINE float sum(VecF v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v.v), _mm256_extractf128_ps(v.v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
EDGEWISE_INLINE float largest(VecF v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v.v), _mm256_extractf128_ps(v.v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL

#include "kernels/cpu/simd_exp.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

EDGEWISE_INLINE VecF exp(VecF x) {
  // The bound comes first, so that a NaN in x (second operand) survives.
  const __m256 bounded =
      _mm256_min_ps(_mm256_set1_ps(kExpHighest), _mm256_max_ps(_mm256_set1_ps(kExpLowest), x.v));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(bounded, _mm256_set1_ps(kLog2E)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 r =
      _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2Low), _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2High), bounded));
  // 2^n in two factors, both normal numbers, so that only the last product rounds to a denormal.
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  const auto power = [](__m256i e) EDGEWISE_INLINE_LAMBDA {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
  };
  const __m256 scaled = _mm256_mul_ps(exp_of_remainder(VecF{r}).v, power(half));
  return {_mm256_mul_ps(scaled, power(_mm256_sub_epi32(whole, half)))};
}

EDGEWISE_INLINE VecF log(VecF x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  __m256 n = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(127)));
  __m256 m = _mm256_castsi256_ps(
      _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFF)), _mm256_set1_epi32(0x3F800000)));
  const __m256 high = _mm256_cmp_ps(m, _mm256_set1_ps(kSqrt2), _CMP_GT_OQ);
  m = _mm256_blendv_ps(m, _mm256_mul_ps(m, _mm256_set1_ps(0.5f)), high);
  n = _mm256_add_ps(n, _mm256_and_ps(high, _mm256_set1_ps(1.0f)));
  return log_of_parts(VecF{m}, VecF{n});
}

// Lane sums by halving: at every step two vectors become one, so 8 vectors cost 7 additions and 14 shuffles.
struct Halving {
  EDGEWISE_INLINE static __m256 by1(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
  }
  EDGEWISE_INLINE static __m256 by2(__m256 a, __m256 b) {
    const __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
  }
  EDGEWISE_INLINE static __m256 by4(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
};

template <typename Acc, typename F>
EDGEWISE_INLINE VecF transpose_reduce(const F& f, int count) {
  const auto four = [&](int i) EDGEWISE_INLINE_LAMBDA {
    const __m256 ab = Halving::by1(f(i).v, f(i + 1).v), cd = Halving::by1(f(i + 2).v, f(i + 3).v);
    return Halving::by2(ab, cd);
  };
  return {Halving::by4(four(0), count > 4 ? four(4) : _mm256_setzero_ps())};
}

template <typename F>
EDGEWISE_INLINE void for_lanes(VecF v, const F& f) {
  const auto four = [&](int first, __m256 same) EDGEWISE_INLINE_LAMBDA {
    f(first, VecF{_mm256_permute_ps(same, 0x00)});
    f(first + 1, VecF{_mm256_permute_ps(same, 0x55)});
    f(first + 2, VecF{_mm256_permute_ps(same, 0xAA)});
    f(first + 3, VecF{_mm256_permute_ps(same, 0xFF)});
  };
  four(0, _mm256_permute2f128_ps(v.v, v.v, 0x00));
  four(4, _mm256_permute2f128_ps(v.v, v.v, 0x11));
}

template <int N>
EDGEWISE_INLINE void load_row(const float* from, VecF (&row)[N]) {
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) row[n] = VecF::load(from + 8 * n);
}
template <int N>
EDGEWISE_INLINE void store_row(float* to, const VecF (&row)[N]) {
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) row[n].store(to + 8 * n);
}
// Pairs of vectors hold the even and the odd elements of 16.
template <int N>
EDGEWISE_INLINE void load_row(const Bf16* from, VecF (&row)[N]) {
#pragma GCC unroll 16
  for (int n = 0; n + 1 < N; n += 2) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 8 * n));
    row[n].v = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    row[n + 1].v =
        _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))));
  }
  if constexpr (N % 2 == 1) row[N - 1] = VecF::load(from + 8 * (N - 1));
}
template <int N>
EDGEWISE_INLINE void store_row(Bf16* to, const VecF (&row)[N]) {
#pragma GCC unroll 16
  for (int n = 0; n + 1 < N; n += 2) {
    const __m256i both = _mm256_or_si256(row[n].rounded(), _mm256_slli_epi32(row[n + 1].rounded(), 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8 * n), both);
  }
  if constexpr (N % 2 == 1) row[N - 1].store(to + 8 * (N - 1));
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
