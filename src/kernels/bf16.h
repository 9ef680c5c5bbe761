// bf16 as raw bits, so that kernels need no torch header. Layout-compatible with c10::BFloat16.
// Inlined always: the sources of several CPU levels include this file, and a copy compiled for one level must
// not be linked into another.
#pragma once

#include <bit>
#include <cstdint>

namespace edgewise::kernels {

struct Bf16 {
  uint16_t bits;
};

[[gnu::always_inline]] inline float to_accumulator(Bf16 value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16);
}
[[gnu::always_inline]] inline float to_accumulator(float value) {
  return value;
}
[[gnu::always_inline]] inline double to_accumulator(double value) {
  return value;
}

template <typename T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
// fp32 for bf16 and fp32, fp64 for fp64.
template <typename T>
using Accumulator = typename AccumulatorOf<T>::type;

template <typename T>
[[gnu::always_inline]] inline T from_accumulator(Accumulator<T> value) {
  return value;
}
template <>
[[gnu::always_inline]] inline Bf16 from_accumulator<Bf16>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    return {static_cast<uint16_t>((bits >> 16) | 0x40u)};                        // NaN stays NaN
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};  // round to even
}

}  // namespace edgewise::kernels
