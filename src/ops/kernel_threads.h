// How many threads the CPU kernels really run on.
#pragma once

namespace edgewise::ops {

// Starts a parallel region as the kernels do and counts who came. at::parallel_for silently runs on one
// thread in a file that is not compiled for OpenMP, whatever at::get_num_threads() says.
int count_kernel_threads();

}  // namespace edgewise::ops
