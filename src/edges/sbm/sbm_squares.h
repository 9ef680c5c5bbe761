// Parts of SbmEdges of unit 16: nodes, and what is kept of them while a sequence grows.
#pragma once

#include <edgewise/edges/sbm_edges.h>

namespace edgewise {

// The mean of each group's valid tokens, 0 for a group without: [B, H, N, D] -> [B, H, groups(N), D].
at::Tensor mean_of_groups(const at::Tensor& tokens, const std::optional<at::Tensor>& mask);

// Keeps what later requests for the same sequence ask for. `queries`: Q^ of new tokens, each as a group of
// which it is the first, [B, H, n, C]; `key_sides`: T of the groups whose last token is among them, [B, H,
// groups, C].
void keep_grown(RowBuffer& known, const at::Tensor& queries, const at::Tensor& key_sides);

}  // namespace edgewise
