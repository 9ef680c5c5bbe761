// Edges to a run of keys per query.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/edges/edge_source.h>

namespace edgewise {

// Query i uses keys first_i .. last_i - 1; first and last [H or 1, L] int64, cut to 0 .. S.
EdgeSet range_edges(const EdgeShape& shape, const at::Tensor& first, const at::Tensor& last);

// What the request forbids goes: padding keys, padding queries, the future (allowed_choice.cpp).
EdgeSet restricted(EdgeSet edges, const EdgeRequest& request);

// A choice that nothing learns from.
EdgeChoice plain_choice(EdgeSet edges);

}  // namespace edgewise
