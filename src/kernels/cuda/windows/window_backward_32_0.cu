// The backward pass over windows for head dim 32 and no clusters.
#include "kernels/cuda/windows/window_backward.cuh"
#include "kernels/cuda/windows/window_backward_dims.h"

namespace edgewise::kernels::cuda {

int launch_window_backward_32_0(const WindowBackwardParams& p, Stream stream) {
  return launch_windows<32, 0>(p, stream);
}

}  // namespace edgewise::kernels::cuda
