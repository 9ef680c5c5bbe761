// The backward pass over windows (window_backward.cuh): which head dim and number of clusters.
#include <cuda_runtime_api.h>

#include "kernels/cuda/windows/window_backward_dims.h"

namespace edgewise::kernels::cuda {

int64_t window_row_bytes(int64_t head_dim, int64_t clusters) {
  return 4 * head_dim + 2 * clusters + 16;
}

int launch_window_backward(const WindowBackwardParams& p, Stream stream) {
  switch (p.head_dim * 1000 + p.credit.clusters) {
    case 32000:
      return launch_window_backward_32_0(p, stream);
    case 32032:
      return launch_window_backward_32_32(p, stream);
    case 32128:
      return launch_window_backward_32_128(p, stream);
    case 64000:
      return launch_window_backward_64_0(p, stream);
    case 64032:
      return launch_window_backward_64_32(p, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace edgewise::kernels::cuda
