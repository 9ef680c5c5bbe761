// Attention with additive scores and sparse products on CUDA, in fp32. Torch-free and CUDA-free.
//
// value_dim and width are 8, 16, 32, 64, 128 or 256, and rows start at multiples of 16 bytes. Of credit rules
// there is no kLeaveOneOut.
#pragma once

#include "kernels/additive_params.h"
#include "kernels/cuda/tiles/tile_params.h"

namespace edgewise::kernels::cuda {

int launch_additive_forward(const AdditiveForwardParams<float>& params, Stream stream);
int launch_additive_rows(const AdditiveRowsParams<float>& params, Stream stream);
int launch_additive_columns(const AdditiveColumnsParams<float>& params, Stream stream);
int launch_additive_probes(const AdditiveProbesParams<float>& params, Stream stream);
int launch_sparse_product(const SparseProductParams<float>& params, Stream stream);

constexpr bool additive_takes(int64_t width) {
  return width >= 8 && width <= 256 && (width & (width - 1)) == 0;
}

}  // namespace edgewise::kernels::cuda
