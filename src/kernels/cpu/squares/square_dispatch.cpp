// The kernels over squares of the level in use.
#include <cstdlib>
#include <type_traits>

#include "kernels/cpu/squares/square_kernels.h"

namespace edgewise::kernels::cpu {

template <typename T>
bool has_square_kernels() {
#if defined(EDGEWISE_X86_LEVELS)
  if constexpr (std::is_same_v<T, Bf16>) return active_level() == Level::kAvx512Bf16;
#endif
  return !std::is_same_v<T, Bf16>;
}

template <typename T>
SquareKernels<T> active_square_kernels() {
#define EDGEWISE_SQUARE_KERNELS(level)                                                                 \
  SquareKernels<T> {                                                                                   \
    level::square_forward<T>, level::square_backward_by_queries<T>, level::square_backward_by_keys<T>, \
        level::square_backward_whole_heads<T>                                                          \
  }
#if defined(EDGEWISE_X86_LEVELS)
  if constexpr (std::is_same_v<T, Bf16>) {
    return EDGEWISE_SQUARE_KERNELS(avx512bf16);
  } else if constexpr (std::is_same_v<T, float>) {
    switch (active_level()) {
      case Level::kScalar:
        break;
      case Level::kAvx2:
        return EDGEWISE_SQUARE_KERNELS(avx2);
      case Level::kAvx512:
        return EDGEWISE_SQUARE_KERNELS(avx512);
      case Level::kAvx512Bf16:
        return EDGEWISE_SQUARE_KERNELS(avx512bf16);
    }
  }
#endif
  if constexpr (std::is_same_v<T, Bf16>)
    std::abort();  // has_square_kernels was not asked
  else
    return EDGEWISE_SQUARE_KERNELS(scalar);
#undef EDGEWISE_SQUARE_KERNELS
}

template bool has_square_kernels<float>();
template bool has_square_kernels<double>();
template bool has_square_kernels<Bf16>();
template SquareKernels<float> active_square_kernels<float>();
template SquareKernels<double> active_square_kernels<double>();
template SquareKernels<Bf16> active_square_kernels<Bf16>();

}  // namespace edgewise::kernels::cpu
