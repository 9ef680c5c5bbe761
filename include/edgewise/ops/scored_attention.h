// Attention over edges whose scores are not a plain dot product: a number per edge, and optionally a gate.
//
//   a_e = gate_e exp(s_e) / sum over the row's edges of gate exp(s);   o_i = sum_e a_e v_j
//
// For score rules beside edge_attention's own (relative positions, edge types, soft spans). Plain ATen,
// linear in edges, differentiable in everything, any number of times. Per-edge values are in CSR order.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

namespace edgewise::functional {

// query_i . key_j of every edge: [E]. query [B, H, L, D], key [B, H, S, D].
at::Tensor edge_scores(const at::Tensor& query, const at::Tensor& key, const EdgeSet& edges);

// query_i . table[head][types[e]] of every edge: [E]. table [H or 1, T, D]; types [E] int64.
at::Tensor edge_type_scores(const at::Tensor& query, const at::Tensor& table, const EdgeSet& edges,
                            const at::Tensor& types);

// scores [E], value [B, H, S, Dv], gates [E], 0 or more, or undefined -> [B, H, L, Dv]. A row without edges,
// or whose gates are all 0, gives 0.
at::Tensor scored_edge_attention(const at::Tensor& scores, const at::Tensor& value, const EdgeSet& edges,
                                 const at::Tensor& gates = {});

// j - (query_offset + i) of every edge: [E] int64.
at::Tensor edge_distances(const EdgeSet& edges, int64_t query_offset = 0);

}  // namespace edgewise::functional
