// e^x for fp32 vectors: x = n ln 2 + r with |r| <= ln 2 / 2, then e^r = 1 + r + r^2 P(r) with P of degree 4,
// minimax for the relative error of e^r (3e-9, far below the 6e-8 of rounding).
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

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
