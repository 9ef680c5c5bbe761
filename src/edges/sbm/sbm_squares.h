// Parts of SbmEdges of unit 16: nodes, and what is kept of them while a sequence grows.
#pragma once

#include <edgewise/edges/sbm_edges.h>

#include "edges/square_nodes.h"

namespace edgewise {

// Keeps what later requests for the same sequence ask for. `queries`: Q^ of new tokens, each as a group of
// which it is the first, [B, H, n, C]; `key_sides`: T of the groups whose last token is among them, [B, H,
// groups, C].
void keep_grown(RowBuffer& known, const at::Tensor& queries, const at::Tensor& key_sides);

}  // namespace edgewise
