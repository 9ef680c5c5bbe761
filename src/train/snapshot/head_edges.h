// The edges of single heads as snapshots keep them, with the attention weight on each.
#pragma once

#include <edgewise/attention/self_attention.h>
#include <edgewise/train/snapshot.h>

namespace edgewise::train {

// Of one item: what its heads chose and how much weight each edge has.
struct HeadEdgesInput {
  AttentionView view;   // B = 1, on the CPU
  int64_t queries = 0;  // tokens to show; the others are padding
  int64_t keys = 0;
  int64_t most_edges = 0;  // per head
};

// For head h: offsets, keys, weights, edges and chosen. The weight of an edge is
//   a_ij = exp(s_ij) / sum over the query's edges of exp(s_ij'),  s_ij = q_i . k_j / sqrt(D)
HeadSnapshot head_edges(const HeadEdgesInput& input, int64_t head);

}  // namespace edgewise::train
