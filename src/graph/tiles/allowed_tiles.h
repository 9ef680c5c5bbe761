// Masks as bit tiles: what a request allows, in the layout of an EdgeSet's own tiles. Nothing waits for the
// device and nothing is copied to it, so that a CUDA graph may record it.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

#include <optional>

namespace edgewise::graph {

struct AllowedPairs {
  std::optional<at::Tensor> key_mask;    // [B, S] bool, true = may be used
  std::optional<at::Tensor> query_mask;  // [B, L] bool
  bool is_causal = false;                // key j for query i only where j <= query_offset + i
  int64_t query_offset = 0;
};

// The set without the pairs that are not allowed, as tiles alone.
EdgeSet restricted_tiles(const EdgeSet& edges, const AllowedPairs& allowed);

}  // namespace edgewise::graph
