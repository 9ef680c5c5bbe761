// Runs a piece of a test on a lower CPU level than the machine's best.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace edgewise::kit {

inline bool has_cpu_level(const std::string& level) {
#if defined(__x86_64__)
  if (level == "avx2") return __builtin_cpu_supports("avx2");
  if (level == "avx512") return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
#endif
  return level == "scalar";
}

class ForcedCpuLevel {
 public:
  explicit ForcedCpuLevel(const char* level) {
    if (const char* before = std::getenv(kName)) before_ = before;
    ::setenv(kName, level, 1);
  }
  ~ForcedCpuLevel() { before_ ? ::setenv(kName, before_->c_str(), 1) : ::unsetenv(kName); }
  ForcedCpuLevel(const ForcedCpuLevel&) = delete;
  ForcedCpuLevel& operator=(const ForcedCpuLevel&) = delete;

 private:
  static constexpr const char* kName = "EDGEWISE_CPU_LEVEL";
  std::optional<std::string> before_;
};

}  // namespace edgewise::kit
