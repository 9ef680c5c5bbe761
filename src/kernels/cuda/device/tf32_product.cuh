// A matrix product of one warp (mma.sync), tf32 in, fp32 out.
#pragma once

#include <cstdint>

namespace edgewise::kernels::cuda {

// d[16, 8] += a[16, 8] b[8, 8]; of the operands, fp32 numbers, the lowest 13 bits are not looked at.
__device__ inline void multiply_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace edgewise::kernels::cuda
