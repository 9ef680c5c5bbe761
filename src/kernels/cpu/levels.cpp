// Detection by cpuid, once; the table of kernels per level.
#include "kernels/cpu/levels.h"

#include <atomic>
#include <type_traits>

namespace edgewise::kernels::cpu {
namespace {

bool cpu_has(Level level) {
  switch (level) {
    case Level::kScalar:
      return true;
#if defined(EDGEWISE_X86_LEVELS)
    case Level::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
             __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("popcnt");
    case Level::kAvx512:
      return cpu_has(Level::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
    case Level::kAvx512Bf16:
      return cpu_has(Level::kAvx512) && __builtin_cpu_supports("avx512bf16");
#endif
    default:
      return false;
  }
}

std::atomic<Level>& active() {
  static std::atomic<Level> level = best_level();
  return level;
}

}  // namespace

const char* level_name(Level level) {
  switch (level) {
    case Level::kScalar:
      return "scalar";
    case Level::kAvx2:
      return "avx2";
    case Level::kAvx512:
      return "avx512";
    case Level::kAvx512Bf16:
      return "avx512bf16";
  }
  return "unknown";
}

std::optional<Level> level_from_name(std::string_view name) {
  for (const Level level : kLevels)
    if (name == level_name(level)) return level;
  return std::nullopt;
}

bool is_available(Level level) {
  return cpu_has(level);
}

Level best_level() {
  Level best = Level::kScalar;
  for (const Level level : kLevels)
    if (cpu_has(level)) best = level;
  return best;
}

Level active_level() {
  return active().load(std::memory_order_relaxed);
}

void set_active_level(Level level) {
  active().store(level, std::memory_order_relaxed);
}

template <typename T>
AttentionKernels<T> active_attention_kernels() {
#if defined(EDGEWISE_X86_LEVELS)
  if constexpr (!std::is_same_v<T, double>) {
    switch (active_level()) {
      case Level::kScalar:
        break;
      case Level::kAvx2:
        return avx2::attention_kernels<T>();
      case Level::kAvx512:
        return avx512::attention_kernels<T>();
      case Level::kAvx512Bf16:
        return avx512bf16::attention_kernels<T>();
    }
  }
#endif
  return scalar::attention_kernels<T>();
}

template <typename T>
ProductKernels<T> active_product_kernels() {
#if defined(EDGEWISE_X86_LEVELS)
  if constexpr (!std::is_same_v<T, double>) {
    switch (active_level()) {
      case Level::kScalar:
        break;
      case Level::kAvx2:
        return avx2::product_kernels<T>();
      case Level::kAvx512:
        return avx512::product_kernels<T>();
      case Level::kAvx512Bf16:
        return avx512bf16::product_kernels<T>();
    }
  }
#endif
  return scalar::product_kernels<T>();
}

template AttentionKernels<float> active_attention_kernels<float>();
template AttentionKernels<double> active_attention_kernels<double>();
template AttentionKernels<Bf16> active_attention_kernels<Bf16>();
template ProductKernels<float> active_product_kernels<float>();
template ProductKernels<double> active_product_kernels<double>();
template ProductKernels<Bf16> active_product_kernels<Bf16>();

}  // namespace edgewise::kernels::cpu
