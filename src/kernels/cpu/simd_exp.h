// e^x for fp32 vectors: x = n ln 2 + r with |r| <= ln 2 / 2, then e^r = 1 + r + r^2 P(r) with P of degree 4,
// minimax for the relative error of e^r (3e-9, far below the 6e-8 of rounding). And ln x.
#pragma once

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62e4p-1f;  // 13 bits: n * kLn2High is exact
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
// Below, the result is 0 (the smallest denormal is e^-103.3); above, infinity.
inline constexpr float kExpLowest = -110.0f, kExpHighest = 100.0f;
inline constexpr float kExpP[] = {0x1.fffffcp-2f, 0x1.55549p-3f, 0x1.5558f4p-5f, 0x1.123a6cp-7f,
                                  0x1.6a2352p-10f};

// e^r for |r| <= ln 2 / 2.
template <typename V>
EDGEWISE_INLINE V exp_of_remainder(V r) {
  V p = fma(V::broadcast(kExpP[4]), r, V::broadcast(kExpP[3]));
  p = fma(p, r, V::broadcast(kExpP[2]));
  p = fma(p, r, V::broadcast(kExpP[1]));
  p = fma(p, r, V::broadcast(kExpP[0]));
  return fma(p, r * r, r) + V::broadcast(1.0f);
}

// ln(2^n m) for m in [sqrt(1/2), sqrt(2)]: with f = m - 1, ln m = f - f^2/2 + f^3 P(f), P of degree 8 (the
// coefficients of the Cephes library's logf).
inline constexpr float kSqrt2 = 0x1.6a09e6p+0f;
inline constexpr float kLogP[] = {3.3333331174e-1f,  -2.4999993993e-1f, 2.0000714765e-1f,
                                  -1.6668057665e-1f, 1.4249322787e-1f,  -1.2420140846e-1f,
                                  1.1676998740e-1f,  -1.1514610310e-1f, 7.0376836292e-2f};
template <typename V>
EDGEWISE_INLINE V log_of_parts(V m, V n) {
  const V f = m - V::broadcast(1.0f), square = f * f;
  V p = V::broadcast(kLogP[8]);
  for (int i = 7; i >= 0; --i) p = fma(p, f, V::broadcast(kLogP[i]));
  const V small = fma(n, V::broadcast(kLn2Low), fma(p, square * f, V::broadcast(-0.5f) * square));
  return fma(n, V::broadcast(kLn2High), f + small);
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
