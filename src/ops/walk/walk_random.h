// The random numbers of walks, in plain ATen.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/walk_lanes.h"

namespace edgewise::ops::reference {

// A uniform number in (0, 1) per head, row and step, open_uniform() of the words 0 and 1 of
// philox({row, step, 0, lane}) under the head's key: [heads, rows, steps] double. Row i is row first_row + i.
at::Tensor walk_uniforms(const at::Tensor& head_keys, int64_t rows, int64_t steps, uint32_t lane,
                         at::Device device, int64_t first_row = 0);

}  // namespace edgewise::ops::reference
