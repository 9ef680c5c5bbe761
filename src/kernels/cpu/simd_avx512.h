// AVX-512 (F, BW, DQ, VL): 16 lanes of fp32. bf16 is widened by a shift, two vectors from one load.
#pragma once

#include <immintrin.h>

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

template <typename Acc>
struct Vec;

template <>
struct Vec<float> {
  static constexpr int kWidth = 16;
  __m512 v;

  EDGEWISE_INLINE static Vec zero() { return {_mm512_setzero_ps()}; }
  EDGEWISE_INLINE static Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
  EDGEWISE_INLINE static __mmask16 first(int count) { return static_cast<__mmask16>((1u << count) - 1); }
  EDGEWISE_INLINE static Vec widen(__m256i bits) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  // Rounds to nearest even; NaN stays NaN.
  EDGEWISE_INLINE __m256i narrow() const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i result = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(result, 16));
  }

  EDGEWISE_INLINE static Vec load(const float* from) { return {_mm512_loadu_ps(from)}; }
  EDGEWISE_INLINE static Vec load(const Bf16* from) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  EDGEWISE_INLINE static Vec load_first(const float* from, int count) {
    return {_mm512_maskz_loadu_ps(first(count), from)};
  }
  EDGEWISE_INLINE static Vec load_first(const Bf16* from, int count) {
    return widen(_mm256_maskz_loadu_epi16(first(count), from));
  }
  EDGEWISE_INLINE void store(float* to) const { _mm512_storeu_ps(to, v); }
  EDGEWISE_INLINE void store(Bf16* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow());
  }
  EDGEWISE_INLINE void store_first(float* to, int count) const { _mm512_mask_storeu_ps(to, first(count), v); }
  EDGEWISE_INLINE void store_first(Bf16* to, int count) const {
    _mm256_mask_storeu_epi16(to, first(count), narrow());
  }
  EDGEWISE_INLINE friend Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  EDGEWISE_INLINE friend Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  EDGEWISE_INLINE friend Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  EDGEWISE_INLINE friend Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
};
using VecF = Vec<float>;

EDGEWISE_INLINE VecF fma(VecF a, VecF b, VecF c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
EDGEWISE_INLINE VecF max(VecF a, VecF b) {
  return {_mm512_max_ps(a.v, b.v)};
}
EDGEWISE_INLINE VecF keep_first(VecF v, int count, VecF other) {
  return {_mm512_mask_mov_ps(other.v, VecF::first(count), v.v)};
}
EDGEWISE_INLINE float sum(VecF v) {
  return _mm512_reduce_add_ps(v.v);
}
EDGEWISE_INLINE float largest(VecF v) {
  return _mm512_reduce_max_ps(v.v);
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL

#include "kernels/cpu/simd_exp.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

EDGEWISE_INLINE VecF exp(VecF x) {
  // The bound comes first, so that a NaN in x (second operand) survives.
  const __m512 bounded =
      _mm512_min_ps(_mm512_set1_ps(kExpHighest), _mm512_max_ps(_mm512_set1_ps(kExpLowest), x.v));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(bounded, _mm512_set1_ps(kLog2E)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r =
      _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), bounded));
  return {_mm512_scalef_ps(exp_of_remainder(VecF{r}).v, n)};  // rounds once, also to denormals
}

EDGEWISE_INLINE VecF log(VecF x) {
  __m512 m = _mm512_getmant_ps(x.v, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src), n = _mm512_getexp_ps(x.v);
  const __mmask16 high = _mm512_cmp_ps_mask(m, _mm512_set1_ps(kSqrt2), _CMP_GT_OQ);
  m = _mm512_mask_mul_ps(m, high, m, _mm512_set1_ps(0.5f));
  n = _mm512_mask_add_ps(n, high, n, _mm512_set1_ps(1.0f));
  return log_of_parts(VecF{m}, VecF{n});
}

// Lane sums by halving: at every step two vectors become one, so 16 vectors cost 15 additions and 30
// shuffles.
struct Halving {
  EDGEWISE_INLINE static __m512 by1(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  }
  EDGEWISE_INLINE static __m512 by2(__m512 a, __m512 b) {
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  }
  EDGEWISE_INLINE static __m512 by4(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  }
};

template <typename Acc, typename F>
EDGEWISE_INLINE VecF transpose_reduce(const F& f, int count) {
  const auto four = [&](int i) EDGEWISE_INLINE_LAMBDA {
    const __m512 ab = Halving::by1(f(i).v, f(i + 1).v), cd = Halving::by1(f(i + 2).v, f(i + 3).v);
    return Halving::by2(ab, cd);
  };
  if (count > 12) {
    const __m512 low = Halving::by4(four(0), four(4)), high = Halving::by4(four(8), four(12));
    return {Halving::by4(low, high)};
  }
  const __m512 none = _mm512_setzero_ps();
  const __m512 low = Halving::by4(four(0), count > 4 ? four(4) : none);
  return {Halving::by4(low, count > 8 ? Halving::by4(four(8), none) : none)};
}

template <typename F>
EDGEWISE_INLINE void for_lanes(VecF v, const F& f) {
  const auto four = [&](int first, __m512 same) EDGEWISE_INLINE_LAMBDA {
    f(first, VecF{_mm512_permute_ps(same, 0x00)});
    f(first + 1, VecF{_mm512_permute_ps(same, 0x55)});
    f(first + 2, VecF{_mm512_permute_ps(same, 0xAA)});
    f(first + 3, VecF{_mm512_permute_ps(same, 0xFF)});
  };
  four(0, _mm512_shuffle_f32x4(v.v, v.v, 0x00));
  four(4, _mm512_shuffle_f32x4(v.v, v.v, 0x55));
  four(8, _mm512_shuffle_f32x4(v.v, v.v, 0xAA));
  four(12, _mm512_shuffle_f32x4(v.v, v.v, 0xFF));
}

template <int N>
EDGEWISE_INLINE void load_row(const float* from, VecF (&row)[N]) {
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) row[n] = VecF::load(from + 16 * n);
}
template <int N>
EDGEWISE_INLINE void store_row(float* to, const VecF (&row)[N]) {
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) row[n].store(to + 16 * n);
}
// Pairs of vectors hold the even and the odd elements of 32.
template <int N>
EDGEWISE_INLINE void load_row(const Bf16* from, VecF (&row)[N]) {
#pragma GCC unroll 16
  for (int n = 0; n + 1 < N; n += 2) {
    const __m512i both = _mm512_loadu_si512(from + 16 * n);
    row[n].v = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    row[n + 1].v =
        _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
  }
  if constexpr (N % 2 == 1) row[N - 1] = VecF::load(from + 16 * (N - 1));
}
template <int N>
EDGEWISE_INLINE void store_row(Bf16* to, const VecF (&row)[N]) {
#pragma GCC unroll 16
  for (int n = 0; n + 1 < N; n += 2) {
    const __m512i even = _mm512_cvtepu16_epi32(row[n].narrow()),
                  odd = _mm512_cvtepu16_epi32(row[n + 1].narrow());
    _mm512_storeu_si512(to + 16 * n, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
  }
  if constexpr (N % 2 == 1) row[N - 1].store(to + 16 * (N - 1));
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
