// The CPU levels of the attention and product kernels: which exist, which this CPU has, which one is in use.
#pragma once

#include <optional>
#include <string_view>

#include "kernels/params.h"

namespace edgewise::kernels::cpu {

enum class Level : int { kScalar, kAvx2, kAvx512, kAvx512Bf16 };
inline constexpr Level kLevels[] = {Level::kScalar, Level::kAvx2, Level::kAvx512, Level::kAvx512Bf16};

const char* level_name(Level level);  // "scalar", "avx2", "avx512", "avx512bf16"
std::optional<Level> level_from_name(std::string_view name);
bool is_available(Level level);  // compiled in, and this CPU has its instructions
Level best_level();

// The level that kernels run on: the best one until another is set. `level` must be available.
Level active_level();
void set_active_level(Level level);

// Each kernel takes a range of rows (or columns); the caller divides them among threads.
template <typename Params>
using RangeKernel = void (*)(const Params&, int64_t begin, int64_t end);

template <typename T>
struct AttentionKernels {
  RangeKernel<AttentionForwardParams<T>> forward;
  RangeKernel<AttentionBackwardParams<T>> backward_rows;
  RangeKernel<ProbeCreditParams<T>> probe_credit;
};

template <typename T>
struct ProductKernels {
  RangeKernel<GatherSumParams<T>> gather_sum;
  RangeKernel<ScatterSumParams<T>> scatter_sum;
  RangeKernel<EdgeDotParams<T>> edge_dot;
};

// The kernels of the active level. fp64 has the portable ones only.
template <typename T>
AttentionKernels<T> active_attention_kernels();
template <typename T>
ProductKernels<T> active_product_kernels();

// One namespace per level, filled by edge_attention_level.cpp and sparse_product_level.cpp.
#define EDGEWISE_DECLARE_LEVEL(name)       \
  namespace name {                         \
  template <typename T>                    \
  AttentionKernels<T> attention_kernels(); \
  template <typename T>                    \
  ProductKernels<T> product_kernels();     \
  }
EDGEWISE_DECLARE_LEVEL(scalar)
EDGEWISE_DECLARE_LEVEL(avx2)
EDGEWISE_DECLARE_LEVEL(avx512)
EDGEWISE_DECLARE_LEVEL(avx512bf16)
#undef EDGEWISE_DECLARE_LEVEL

}  // namespace edgewise::kernels::cpu
