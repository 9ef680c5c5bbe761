// Runs a piece of a test on a lower CPU level than the machine's best.
#pragma once

#include <edgewise/ops/cpu_level.h>

#include <algorithm>
#include <string>

namespace edgewise::kit {

inline bool has_cpu_level(const std::string& level) {
  const auto levels = available_cpu_levels();
  return std::ranges::find(levels, level) != levels.end();
}

class ForcedCpuLevel {
 public:
  explicit ForcedCpuLevel(const char* level) : before_(cpu_level()) { set_cpu_level(level); }
  ~ForcedCpuLevel() { set_cpu_level(before_); }
  ForcedCpuLevel(const ForcedCpuLevel&) = delete;
  ForcedCpuLevel& operator=(const ForcedCpuLevel&) = delete;

 private:
  std::string before_;
};

}  // namespace edgewise::kit
