#include "kernels/cpu/additive/additive_kernels.h"

#include <type_traits>

namespace edgewise::kernels::cpu {

template <typename T>
AdditiveKernels<T> active_additive_kernels() {
#if defined(EDGEWISE_X86_LEVELS)
  if constexpr (!std::is_same_v<T, double>) {
    switch (active_level()) {
      case Level::kScalar:
        break;
      case Level::kAvx2:
        return avx2::additive_kernels<T>();
      case Level::kAvx512:
      case Level::kAvx512Bf16:
        return avx512::additive_kernels<T>();
    }
  }
#endif
  return scalar::additive_kernels<T>();
}
template AdditiveKernels<float> active_additive_kernels<float>();
template AdditiveKernels<double> active_additive_kernels<double>();

}  // namespace edgewise::kernels::cpu
