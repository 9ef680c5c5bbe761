// Which compiled set of sampler kernels this process uses.
#include <cstdlib>
#include <string_view>

#include "kernels/cpu/sample_kernels.h"

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
  // Read at every call, so that a test can change it between two calls.
  const char* const wanted = std::getenv("EDGEWISE_CPU_LEVEL");
  const std::string_view most = wanted ? wanted : "";
  static const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
  static const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                                 __builtin_cpu_supports("avx512dq");
  if (most == "scalar") return scalar::kernels;
  if (has_avx512 && most != "avx2") return avx512::kernels;
  if (has_avx2) return avx2::kernels;
#endif
  return scalar::kernels;
}

}  // namespace edgewise::kernels::cpu
