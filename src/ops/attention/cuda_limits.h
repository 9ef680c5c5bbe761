// What the CUDA kernels of edge_attention take: numbers, in every build, so that a machine without a GPU can
// say what one would do. The refusals that they make up stand in cuda_refusals.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "ops/attention/attention_call.h"

namespace edgewise::ops {

struct CudaDevice {
  std::string no_kernels;  // why none of our kernels runs there; empty when they do
  int64_t bytes = 0;       // of its memory
};
CudaDevice cuda_device(at::Device device);
// How many edges there are; asks the device, and waits for it, unless a stream is being captured.
std::optional<int64_t> cuda_edge_count(const EdgeSet& edges);

// Clusters as the kernels take them: 32 or 128, missing ones 0.
inline int64_t padded_clusters(int64_t clusters) {
  return clusters == 0 ? 0 : clusters <= 32 ? 32 : 128;
}

// Whether one bit per pair fits comfortably.
inline bool fits_tiles(const EdgeShape& shape) {
  return shape.pairs() / 8 <= int64_t{16} << 30;
}
// Bytes of tiles beyond which attention in fp32 goes by edges, one by one.
inline constexpr int64_t kLargestFloatTiles = int64_t{1} << 31;
// Whether there is room for the lists of windows, which take up to six times that of tiles: by queries, by
// keys, and what is dropped of each. They get a quarter of the device's memory.
bool windows_fit(const EdgeShape& shape, int64_t device_bytes);

// Why no kernel forms the gradients of a learner's memberships; empty when some do. Others give numbers per
// edge, for which edges must be lists.
std::string cuda_fold_refusal(const LearnerCall& learns);

// Heads with at most this part of all pairs go by windows (docs/kernels/cuda-windows.md): backward, where the
// lists count against them; and forward, where they do only if no backward pass needs them anyway. With
// dropout both are the same: a head that goes one way forward and the other back draws what is dropped twice.
double backward_window_density(const AttentionCall& call);
double forward_window_density(const AttentionCall& call);
// Why the backward pass of windows and tiles is by tiles alone; empty when it is not.
std::string window_backward_refusal(const AttentionCall& call);

}  // namespace edgewise::ops
