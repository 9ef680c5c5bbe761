// The kernels of attention with additive scores and of sparse products, per CPU level.
#pragma once

#include "kernels/additive_params.h"
#include "kernels/cpu/levels.h"

namespace edgewise::kernels::cpu {

// Each takes a range of nodes b * rows + i and does all heads of these.
template <typename T>
struct AdditiveKernels {
  RangeKernel<AdditiveForwardParams<T>> forward;
  RangeKernel<AdditiveRowsParams<T>> backward_rows;
  RangeKernel<AdditiveColumnsParams<T>> backward_columns;
  RangeKernel<AdditiveProbesParams<T>> probe_credit;
  RangeKernel<SparseProductParams<T>> sparse_product;
};

// Of the active level; fp64 has the portable ones only.
template <typename T>
AdditiveKernels<T> active_additive_kernels();

#define EDGEWISE_DECLARE_LEVEL(name)     \
  namespace name {                       \
  template <typename T>                  \
  AdditiveKernels<T> additive_kernels(); \
  }
EDGEWISE_DECLARE_LEVEL(scalar)
EDGEWISE_DECLARE_LEVEL(avx2)
EDGEWISE_DECLARE_LEVEL(avx512)
#undef EDGEWISE_DECLARE_LEVEL

}  // namespace edgewise::kernels::cpu
