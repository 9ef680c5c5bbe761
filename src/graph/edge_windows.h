// Windows of the sparse heads of bit tiles on a CUDA device (layout: kernels/cuda/window_params.h). Which
// heads are sparse enough is found out on the device, so that nobody waits for a count.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

namespace edgewise::graph {

struct EdgeWindows {
  at::Tensor entries;     // [B*H, windows, blocks, block_keys] int32
  at::Tensor ends;        // [B*H, windows, blocks] int16
  at::Tensor by_windows;  // [B*H] uint8: heads that have windows
};

// Of heads with at most `density` of all pairs; edges_per_head [B, H] int64.
EdgeWindows edge_windows(const EdgeShape& shape, const at::Tensor& tiles, const at::Tensor& edges_per_head,
                         int block_keys, double density);

}  // namespace edgewise::graph
