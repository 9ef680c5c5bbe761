// What every launch of our CUDA kernels from tensors needs. Only files that are built with CUDA include this.
#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <edgewise/graph/edge_set.h>

#include "kernels/cuda/tile_params.h"

namespace edgewise::graph {

inline kernels::cuda::TileShape tile_shape(const EdgeShape& shape) {
  return {shape.batch, shape.heads, shape.queries, shape.keys};
}
inline kernels::cuda::Stream current_stream() {
  return at::cuda::getCurrentCUDAStream().stream();
}
inline void check_launch(const char* kernel, int error) {
  TORCH_CHECK(error == cudaSuccess, "edgewise: the CUDA kernel ", kernel,
              " failed to start: ", cudaGetErrorString(static_cast<cudaError_t>(error)));
}
inline uint32_t* words_of(const at::Tensor& tiles) {
  return tiles.defined() ? reinterpret_cast<uint32_t*>(tiles.mutable_data_ptr<int32_t>()) : nullptr;
}

}  // namespace edgewise::graph
