// The backward pass over windows, a translation unit for each head dim and number of clusters.
#pragma once

#include "kernels/cuda/windows/window_params.h"

namespace edgewise::kernels::cuda {

int launch_window_backward_32_0(const WindowBackwardParams& params, Stream stream);
int launch_window_backward_32_32(const WindowBackwardParams& params, Stream stream);
int launch_window_backward_32_128(const WindowBackwardParams& params, Stream stream);
int launch_window_backward_64_0(const WindowBackwardParams& params, Stream stream);
int launch_window_backward_64_32(const WindowBackwardParams& params, Stream stream);

}  // namespace edgewise::kernels::cuda
