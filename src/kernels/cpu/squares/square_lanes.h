// Sixteen numbers side by side, one for each query of a group (or each key), in the vectors of a level, and
// bits that choose among them.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// `a` in the lanes whose bit is set, `b` in the others.
template <typename Acc>
EDGEWISE_INLINE Vec<Acc> select(uint32_t bits, Vec<Acc> a, Vec<Acc> b) {
#if defined(__AVX512F__)
  return {_mm512_mask_mov_ps(b.v, static_cast<__mmask16>(bits), a.v)};
#elif defined(__AVX2__)
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set =
      _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), bit), bit);
  return {_mm256_blendv_ps(b.v, a.v, _mm256_castsi256_ps(set))};
#else
  for (int lane = 0; lane < Vec<Acc>::kWidth; ++lane)
    if (bits >> lane & 1) b.v[lane] = a.v[lane];
  return b;
#endif
}
// The lanes with a > b.
template <typename Acc>
EDGEWISE_INLINE uint32_t greater(Vec<Acc> a, Vec<Acc> b) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)));
#else
  uint32_t bits = 0;
  for (int lane = 0; lane < Vec<Acc>::kWidth; ++lane)
    bits |= static_cast<uint32_t>(a.v[lane] > b.v[lane]) << lane;
  return bits;
#endif
}

template <typename Acc>
struct Lanes {
  using V = Vec<Acc>;
  static constexpr int kCount = 16, kVectors = kCount / V::kWidth;
  V v[kVectors];

  template <typename F>
  EDGEWISE_INLINE static Lanes each(const F& f) {
    Lanes result;
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) result.v[n] = f(n);
    return result;
  }
  EDGEWISE_INLINE static Lanes broadcast(Acc x) {
    return each([&](int) EDGEWISE_INLINE_LAMBDA { return V::broadcast(x); });
  }
  EDGEWISE_INLINE static Lanes zero() {
    return broadcast(0);
  }
  EDGEWISE_INLINE static Lanes load(const Acc* from) {
    return each([&](int n) EDGEWISE_INLINE_LAMBDA { return V::load(from + n * V::kWidth); });
  }
  EDGEWISE_INLINE void store(Acc* to) const {
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) v[n].store(to + n * V::kWidth);
  }
  EDGEWISE_INLINE friend Lanes operator+(const Lanes& a, const Lanes& b) {
    return each([&](int n) EDGEWISE_INLINE_LAMBDA { return a.v[n] + b.v[n]; });
  }
  EDGEWISE_INLINE friend Lanes operator-(const Lanes& a, const Lanes& b) {
    return each([&](int n) EDGEWISE_INLINE_LAMBDA { return a.v[n] - b.v[n]; });
  }
  EDGEWISE_INLINE friend Lanes operator*(const Lanes& a, const Lanes& b) {
    return each([&](int n) EDGEWISE_INLINE_LAMBDA { return a.v[n] * b.v[n]; });
  }
  EDGEWISE_INLINE friend Lanes operator/(const Lanes& a, const Lanes& b) {
    return each([&](int n) EDGEWISE_INLINE_LAMBDA { return a.v[n] / b.v[n]; });
  }
};

template <typename Acc>
EDGEWISE_INLINE Lanes<Acc> max(const Lanes<Acc>& a, const Lanes<Acc>& b) {
  return Lanes<Acc>::each([&](int n) EDGEWISE_INLINE_LAMBDA { return max(a.v[n], b.v[n]); });
}
template <typename Acc>
EDGEWISE_INLINE Lanes<Acc> exp(const Lanes<Acc>& x) {
  return Lanes<Acc>::each([&](int n) EDGEWISE_INLINE_LAMBDA { return exp(x.v[n]); });
}
template <typename Acc>
EDGEWISE_INLINE Lanes<Acc> log(const Lanes<Acc>& x) {
  return Lanes<Acc>::each([&](int n) EDGEWISE_INLINE_LAMBDA { return log(x.v[n]); });
}
template <typename Acc>
EDGEWISE_INLINE Lanes<Acc> select(uint32_t bits, const Lanes<Acc>& a, const Lanes<Acc>& b) {
  return Lanes<Acc>::each(
      [&](int n) EDGEWISE_INLINE_LAMBDA { return select(bits >> (n * Vec<Acc>::kWidth), a.v[n], b.v[n]); });
}
template <typename Acc>
EDGEWISE_INLINE uint32_t greater(const Lanes<Acc>& a, const Lanes<Acc>& b) {
  uint32_t bits = 0;
#pragma GCC unroll 16
  for (int n = 0; n < Lanes<Acc>::kVectors; ++n) bits |= greater(a.v[n], b.v[n]) << (n * Vec<Acc>::kWidth);
  return bits;
}
template <typename Acc>
EDGEWISE_INLINE Acc sum(const Lanes<Acc>& x) {
  Vec<Acc> total = x.v[0];
#pragma GCC unroll 16
  for (int n = 1; n < Lanes<Acc>::kVectors; ++n) total = total + x.v[n];
  return sum(total);
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
