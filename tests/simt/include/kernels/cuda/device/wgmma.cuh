// Of the header of this name the small things: products of warpgroups do not run here.
#pragma once

#include "cuda_bf16.h"

namespace edgewise::kernels::cuda {

inline float exp2_fast(float x) {
  return std::exp2(x);
}
inline uint32_t pack_bf16(float low, float high) {
  return __floats2bfloat162_rn(low, high).bits;
}

}  // namespace edgewise::kernels::cuda
