// Which sets of edges are bands: each query has the keys at most so many places from its own (under causality
// none after it), as far as masks allow. Known of those whose maker said so, without a look at the edges,
// which a device would have to be waited for.
#pragma once

#include <edgewise/graph/edge_set.h>

#include <optional>

namespace edgewise {

// Places are keys, or groups of 16 of them in a set that was born as squares.
void remember_band(const EdgeSet& edges, int64_t width);
std::optional<int64_t> known_band(const EdgeSet& edges);

}  // namespace edgewise
