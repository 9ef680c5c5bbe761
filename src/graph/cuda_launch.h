// What every launch of our CUDA kernels from tensors needs. Only files that are built with CUDA include this.
#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <edgewise/graph/edge_set.h>

#include "graph/edge_windows.h"
#include "kernels/cuda/tiles/tile_params.h"
#include "kernels/cuda/windows/window_params.h"

namespace edgewise::graph {

inline kernels::cuda::TileShape tile_shape(const EdgeShape& shape) {
  return {shape.batch, shape.heads, shape.queries, shape.keys};
}
inline kernels::cuda::Stream current_stream() {
  return at::cuda::getCurrentCUDAStream().stream();
}
// Whether the current stream is recorded into a CUDA graph: nothing runs now, and nobody may wait.
inline bool is_capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}
// Whether the kernels are built for this GPU: Hopper, compute capability 9.0.
inline bool is_hopper(at::Device device) {
  return device.is_cuda() && at::cuda::getDeviceProperties(device.index())->major == 9;
}
inline void check_launch(const char* kernel, int error) {
  TORCH_CHECK(error == cudaSuccess, "edgewise: the CUDA kernel ", kernel,
              " failed to start: ", cudaGetErrorString(static_cast<cudaError_t>(error)));
}
inline uint32_t* words_of(const at::Tensor& tiles) {
  return tiles.defined() ? reinterpret_cast<uint32_t*>(tiles.mutable_data_ptr<int32_t>()) : nullptr;
}
// Sparse heads and their windows as the kernels take them; the tensors must live until the launch.
inline kernels::cuda::FewEdges few_edges(const SparseHeads& heads) {
  if (!heads.edges_per_head.defined()) return {};
  return {reinterpret_cast<const uint64_t*>(heads.edges_per_head.const_data_ptr<int64_t>()),
          heads.most_edges};
}
inline kernels::cuda::WindowLists window_lists(const EdgeWindows& windows) {
  return {words_of(windows.entries), windows.turns.mutable_data_ptr<uint8_t>()};
}

}  // namespace edgewise::graph
