// One graph an item, for every head of it.
#pragma once

#include <edgewise/graph/edge_set.h>

namespace edgewise::graph {

// [B, 1, L, S] -> [B, heads, L, S].
EdgeSet repeated_heads(const EdgeSet& edges, int64_t heads);

}  // namespace edgewise::graph
