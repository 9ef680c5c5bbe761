// Stream keys of all heads of a batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/random_stream.h>

#include "kernels/philox.h"

namespace edgewise::ops {

// [B*H] int64 on CPU (the bits of the uint64 keys).
at::Tensor stream_keys(const RandomStream& random, kernels::Purpose purpose, const EdgeShape& shape);
// The same on `device`; of the pass that is replayed, where one is recorded.
at::Tensor stream_keys_on(at::Device device, const RandomStream& random, kernels::Purpose purpose,
                          const EdgeShape& shape);

}  // namespace edgewise::ops
