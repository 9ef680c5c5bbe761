// The backward pass over windows for head dim 64 and 32 clusters.
#include "kernels/cuda/windows/window_backward.cuh"
#include "kernels/cuda/windows/window_backward_dims.h"

namespace edgewise::kernels::cuda {

int launch_window_backward_64_32(const WindowBackwardParams& p, Stream stream) {
  return launch_windows<64, 32>(p, stream);
}

}  // namespace edgewise::kernels::cuda
