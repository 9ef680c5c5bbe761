// Requests and patterns in squares of 16 x 16 pairs.
#pragma once

#include <edgewise/edges/edge_source.h>
#include <edgewise/graph/square_lists.h>

#include <string>

namespace edgewise {

void check_unit(const char* who, int64_t unit);  // 1 or 16
// Which pairs of a square the request allows.
graph::SquarePairs allowed_square_pairs(const EdgeRequest& request);
EdgeShape shape_of_groups(const EdgeShape& tokens);
// Groups with at least one valid token: [B, N] bool -> [B, groups(N)].
at::Tensor group_mask(const at::Tensor& mask);
std::optional<at::Tensor> group_mask(const std::optional<at::Tensor>& mask);

// All squares; those that a window of `width` tokens on each side touches; `alpha` key groups for each query
// group, drawn uniformly. Each with at least one pair that the request allows, and of those pairs alone.
// Where a sequence grows, the same pairs as single edges, since new queries begin anywhere in a group.
EdgeSet full_squares(const EdgeRequest& request);
EdgeSet window_squares(const EdgeRequest& request, int64_t width);
EdgeSet first_squares(const EdgeRequest& request, int64_t keys);  // those that the first `keys` keys touch
EdgeSet random_squares(const EdgeRequest& request, int64_t alpha);

}  // namespace edgewise
