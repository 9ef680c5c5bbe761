// What the kernels use of CUDA's header.
#pragma once

#include "simt.h"

struct __nv_bfloat162 {
  uint32_t bits;
};
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
  const auto rounded = [](float x) {
    const uint32_t bits = __float_as_uint(x);
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  };
  return {rounded(low) | rounded(high) << 16};
}
