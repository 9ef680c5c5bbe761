// What sources over an input graph ask of a request: a generator of torch for draws that its random stream
// decides, and whether it is about the same edges as the one before.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <edgewise/edges/edge_source.h>

#include <bit>
#include <optional>

#include "ops/streams.h"

namespace edgewise {

inline at::Generator request_generator(const EdgeRequest& request, kernels::Purpose purpose) {
  const at::Tensor key = ops::stream_keys(request.random, purpose, {1, 1, 0, 0});
  return at::detail::createCPUGenerator(std::bit_cast<uint64_t>(key.item<int64_t>()));
}

// By their place in memory: an input graph is made once.
inline bool are_same_edges(const std::optional<EdgeSet>& one, const EdgeSet& other) {
  return one && one->col_indices().is_same(other.col_indices());
}

}  // namespace edgewise
