// Eight neighbouring numbers, in fp32 or bf16, as one thread of a kernel over rows takes them.
#pragma once

#include <cuda_bf16.h>

#include "kernels/bf16.h"

namespace edgewise::kernels::cuda {

constexpr int kTogether = 8;  // numbers a thread

inline __device__ float read(float value) {
  return value;
}
inline __device__ float read(Bf16 value) {
  return __uint_as_float(uint32_t{value.bits} << 16);
}
inline __device__ void write(float& to, float value) {
  to = value;
}
inline __device__ void write(Bf16& to, float value) {
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

template <typename T>
struct alignas(16) Eight {
  T element[kTogether];
};

}  // namespace edgewise::kernels::cuda
