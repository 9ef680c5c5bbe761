// What sources that choose by a policy share: probes of absent keys, and numbers of edges.
#pragma once

#include <edgewise/edges/edge_source.h>

#include <vector>

namespace edgewise {

// Of each item, so that `per_query` keys a query are probed on average. `nearby`: how many of the keys are
// candidates at most; 0 = all that the request allows.
std::vector<double> probe_rates(const EdgeRequest& request, double per_query, int64_t nearby = 0);
// Pairs that the request allows and that are no edges, drawn at these rates.
EdgeSet draw_probes(const EdgeRequest& request, const EdgeSet& edges, const std::vector<double>& rates);

// The probability p of an inclusion, which changes with the log-probability x by dp/dx = slope. Its gradient
// counts with a slope of at least `least`: a softmax hardly moves what it has almost ruled out, so that a
// right key, once lost, would stay lost.
at::Tensor with_least_slope(const at::Tensor& p, const at::Tensor& x, const at::Tensor& slope, double least);

// Of every edge its row in [B, G, L], where heads share one group (G = 1) or have one each (G = H).
at::Tensor rows_in_groups(const EdgeSet& edges, int64_t groups);
// Of every edge its place in [B, G, L, S].
at::Tensor places_in_groups(const EdgeSet& edges, int64_t groups);

}  // namespace edgewise
