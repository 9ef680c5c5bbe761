// What SbmEdges counts and passes on, the same for tokens and for groups of them.
#pragma once

#include <edgewise/edges/sbm_edges.h>

#include "ops/step_inputs.h"

namespace edgewise {

// The pairs of a request, without its states: what is worked out from them can be worked out again for
// another batch in the same masks.
struct RequestPairs {
  explicit RequestPairs(const EdgeRequest& request);

  EdgeShape shape;
  std::optional<at::Tensor> key_mask, query_mask;
  bool is_causal;
  int64_t query_offset;
};

// Pairs per head that may become edges.
double possible_pairs(const RequestPairs& asked, bool count_padding);
// How it is found again for another batch; empty where it is the same for all.
std::function<double()> pairs_again(const RequestPairs& asked, bool count_padding);

// Rows [B, H, N, C] of nodes that take part, by mask [B, N]; the others become 0 and add nothing to a sum.
at::Tensor masked_nodes(const at::Tensor& membership, const std::optional<at::Tensor>& mask);
// Expected number of edges per head over the batch, sum_ij p_ij = (1^T Q^) (T^T 1), in O(n C): [H]. Causal:
// over j <= query_offset + i.
at::Tensor expected_edges(const at::Tensor& queries, const at::Tensor& key_side, bool is_causal,
                          int64_t query_offset);

// How edges are drawn but for masks, and what the learner will be told but for what it is about.
SampleOptions sampling_options(const SbmEdgesOptions& options, const EdgeRequest& request, bool training);
EdgeLearner learner_of(const SbmEdgesOptions& options, const at::Tensor& query_membership,
                       const at::Tensor& key_side, const SampleOptions& sampling);

bool asks_for_probes(const SbmEdgesOptions& options, bool training);
// The rate of each item: the share asked for, or less where that would pass the budget per query. `shape` is
// of groups where the unit is, `key_mask` [B, S] always of tokens.
void set_probe_rates(EdgeLearner& learner, ops::ReplayedNumbers& replayed, const SbmEdgesOptions& options,
                     const EdgeShape& shape, const std::optional<at::Tensor>& key_mask);

}  // namespace edgewise
