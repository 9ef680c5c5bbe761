// The walk kernels of the CPU level in use (levels.h).
#include "kernels/cpu/levels.h"
#include "kernels/cpu/walk/walk.h"

namespace edgewise::kernels::cpu {

#define EDGEWISE_DECLARE_LEVEL(name)        \
  namespace name {                          \
  template <typename T>                     \
  WalkKernels<T> walk_kernels();            \
  template <typename T>                     \
  PairsWalkKernels<T> pairs_walk_kernels(); \
  }
EDGEWISE_DECLARE_LEVEL(scalar)
EDGEWISE_DECLARE_LEVEL(avx2)
EDGEWISE_DECLARE_LEVEL(avx512)
#undef EDGEWISE_DECLARE_LEVEL

template <>
WalkKernels<float> active_walk_kernels<float>() {
#if defined(EDGEWISE_X86_LEVELS)
  switch (active_level()) {
    case Level::kScalar:
      break;
    case Level::kAvx2:
      return avx2::walk_kernels<float>();
    case Level::kAvx512:
    case Level::kAvx512Bf16:
      return avx512::walk_kernels<float>();
  }
#endif
  return scalar::walk_kernels<float>();
}
template <>
PairsWalkKernels<float> active_pairs_walk_kernels<float>() {
#if defined(EDGEWISE_X86_LEVELS)
  switch (active_level()) {
    case Level::kScalar:
      break;
    case Level::kAvx2:
      return avx2::pairs_walk_kernels<float>();
    case Level::kAvx512:
    case Level::kAvx512Bf16:
      return avx512::pairs_walk_kernels<float>();
  }
#endif
  return scalar::pairs_walk_kernels<float>();
}

template <>
WalkKernels<double> active_walk_kernels<double>() {
  return scalar::walk_kernels<double>();
}
template <>
PairsWalkKernels<double> active_pairs_walk_kernels<double>() {
  return scalar::pairs_walk_kernels<double>();
}

}  // namespace edgewise::kernels::cpu
