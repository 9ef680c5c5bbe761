// Rows of a table by number, with a gradient that is the same at every run.
#pragma once

#include <ATen/core/Tensor.h>

namespace edgewise::ops {

// values [N, W] at ids [...] -> [..., W]. Rows that several ids name get their gradients added up in a fixed
// order on every device; at::embedding's order on CUDA depends on the threads.
at::Tensor looked_up(const at::Tensor& values, const at::Tensor& ids);

}  // namespace edgewise::ops
