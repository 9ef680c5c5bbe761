// exp and log of one level over an array; compiled once per level.
#include "kernels/cpu/simd.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// `count` is a multiple of 16.
void exp_array(const float* x, int64_t count, float* out) {
  using V = Vec<float>;
  for (int64_t e = 0; e < count; e += V::kWidth) exp(V::load(x + e)).store(out + e);
}
void log_array(const float* x, int64_t count, float* out) {
  using V = Vec<float>;
  for (int64_t e = 0; e < count; e += V::kWidth) log(V::load(x + e)).store(out + e);
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
