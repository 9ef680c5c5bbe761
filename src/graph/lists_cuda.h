// Lists of edges of CUDA tensors.
#pragma once

#include <optional>

#include "graph/edge_plan.h"
#include "graph/squares/squares.h"

namespace edgewise::graph {

// [N] int32 -> [N + 1] int64: where each begins when they stand one behind the other.
at::Tensor cuda_offsets(const at::Tensor& counts);

// Edges by keys, without edge_ids, by kernels; nothing where there are none for this device.
std::optional<TransposedEdges> cuda_transposed_lists(const EdgeShape& shape, const at::Tensor& row_offsets,
                                                     const at::Tensor& col_indices);

// Squares by key group, by kernels; nothing where there are none for this device.
std::optional<TransposedSquares> cuda_transposed_squares(const Squares& squares);

// Squares of either, or of `a` alone, by kernels and without waiting; nothing where there are none for this
// device or no room for all that could be.
std::optional<Squares> cuda_united_squares(const Squares& a, const Squares& b);
std::optional<Squares> cuda_squares_without(const Squares& a, const Squares& b);

// [B, H] int64: pairs of the squares of each head, by kernels; nothing where there are none for this device.
std::optional<at::Tensor> cuda_pairs_per_head(const Squares& squares, const SquarePairs& pairs);

}  // namespace edgewise::graph
