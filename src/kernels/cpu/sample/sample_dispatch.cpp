// The samplers' kernels of the CPU level in use (levels.h).
#include "kernels/cpu/levels.h"
#include "kernels/cpu/sample/sample_kernels.h"

namespace edgewise::kernels::cpu {

namespace scalar {
extern const SampleKernels kernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const SampleKernels kernels;
}
namespace avx512 {
extern const SampleKernels kernels;
}
#endif

const SampleKernels& sample_kernels() {
#if defined(__x86_64__)
  switch (active_level()) {
    case Level::kScalar:
      return scalar::kernels;
    case Level::kAvx2:
      return avx2::kernels;
    case Level::kAvx512:
    case Level::kAvx512Bf16:
      return avx512::kernels;
  }
#endif
  return scalar::kernels;
}

}  // namespace edgewise::kernels::cpu
