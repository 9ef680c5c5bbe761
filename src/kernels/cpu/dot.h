// Dot product and scaled addition, the inner loops of every CPU kernel here.
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

template <typename T>
inline void add_scaled(Accumulator<T>* out, Accumulator<T> factor, const T* x, int64_t width) {
#pragma omp simd
  for (int64_t d = 0; d < width; ++d) out[d] += factor * to_accumulator(x[d]);
}

}  // namespace edgewise::kernels::cpu
