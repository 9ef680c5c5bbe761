// Dot product of two rows, for the samplers; attention has its own, 16 rows at a time (gathered_rows.h).
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace edgewise::kernels::cpu {

template <typename A, typename B>
inline Accumulator<A> dot(const A* a, const B* b, int64_t width) {
  Accumulator<A> sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t d = 0; d < width; ++d) sum += to_accumulator(a[d]) * to_accumulator(b[d]);
  return sum;
}

}  // namespace edgewise::kernels::cpu
