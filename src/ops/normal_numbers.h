// Standard normal numbers from Philox streams, on any device.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

namespace edgewise::ops {

// [B, H, L, S] double: one number per pair under the streams `head_keys` (streams.h). A number depends on its
// stream, row and column only, not on the sizes.
at::Tensor normal_numbers(const at::Tensor& head_keys, const EdgeShape& shape, at::Device device);

}  // namespace edgewise::ops
