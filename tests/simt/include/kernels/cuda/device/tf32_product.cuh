// The product of the header of this name, lanes exchanging what they hold.
#pragma once

#include "kernels/cuda/device/warp_products.cuh"

namespace edgewise::kernels::cuda {

inline void multiply_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const auto upper = all_lanes(a[0] | uint64_t{a[2]} << 32);  // rows 0 .. 7: columns 0 .. 3, 4 .. 7
  const auto lower = all_lanes(a[1] | uint64_t{a[3]} << 32);
  const auto right = all_lanes(b0 | uint64_t{b1} << 32);
  const auto number = [](uint64_t pair, unsigned half) {
    return __uint_as_float(static_cast<uint32_t>(pair >> (32 * half)) & 0xFFFFE000u);
  };
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (unsigned e = 0; e < 4; ++e)
    for (unsigned k = 0; k < 8; ++k)
      d[e] += number((e < 2 ? upper : lower)[4 * g + k % 4], k / 4) *
              number(right[4 * (2 * t + e % 2) + k % 4], k / 4);
}

}  // namespace edgewise::kernels::cuda
