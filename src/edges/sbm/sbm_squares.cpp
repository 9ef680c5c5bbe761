// SbmEdges of unit 16: groups of 16 tokens are the nodes of the block model (docs/math.md, "Squares").
//
//   p_IJ = Q^_I . T_J, with Q^_I the membership of what speaks for query group I, K^_J that of the mean of
//   key group J.
//
// Everything over groups is what it is over tokens, with these differences: the density counts pairs, so that
// a square weighs as many as it has, and a causal request leaves the key groups that lie wholly before the
// query group.
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/graph/square_lists.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "edges/sbm/sbm_pairs.h"
#include "edges/sbm/sbm_squares.h"
#include "edges/square_patterns.h"
#include "graph/bool_bytes.h"
#include "ops/squares/square_choice.h"
#include "ops/step_inputs.h"

namespace edgewise {
namespace {

using graph::groups_of;
using graph::kSquare;

// The graphs of groups from which the learner draws: in a causal request key group J for query group I where
// J <= I + query_offset / 16 - 1. Query groups without any are left out of it, `skipped` in number.
struct ChoosableGroups {
  int64_t skipped = 0, query_offset = 0;

  explicit ChoosableGroups(const EdgeRequest& request) {
    if (!request.is_causal) return;
    const int64_t before = request.query_offset / kSquare;  // key groups wholly before the first query group
    skipped = before == 0 ? std::min<int64_t>(1, request.query.size(2)) : 0;
    query_offset = before == 0 ? 0 : before - 1;
  }
  at::Tensor rows(const at::Tensor& nodes, int64_t dim) const {
    return skipped == 0 ? nodes : nodes.narrow(dim, skipped, nodes.size(dim) - skipped);
  }
  // Query group I of all draws the numbers of this row.
  int64_t first_row() const { return query_offset - skipped; }
  // The same edges in graphs that have the skipped groups too.
  EdgeSet whole(const EdgeSet& drawn) const {
    if (skipped == 0) return drawn;
    EdgeShape shape = drawn.shape();
    const at::Tensor degrees = at::constant_pad_nd(
        drawn.row_offsets().diff().view({shape.batch * shape.heads, shape.queries}), {skipped, 0}, 0);
    shape.queries += skipped;
    const at::Tensor offsets = at::zeros({shape.rows() + 1}, degrees.options());
    offsets.narrow(0, 1, shape.rows()).copy_(at::cumsum(degrees.view(-1), 0));
    return EdgeSet::from_trusted_csr(shape, offsets, drawn.col_indices());
  }
};

struct SquareDraw {
  const EdgeShape& shape;
  const graph::SquarePairs& pairs;
  const at::Tensor &query_membership, &key_side;  // of groups
  const std::optional<at::Tensor>& query_mask;    // of groups
  const ChoosableGroups& choosable;
};

// Draws squares and, for a learner that asks for them, its probes. By kernels nothing waits for the device;
// otherwise through edges of groups.
EdgeSet draw_squares(const SquareDraw& draw, SampleOptions options, EdgeLearner* asks_for_probes) {
  if (asks_for_probes) options.replayed = asks_for_probes->replayed;
  ops::SquareSampling kernels{draw.shape, draw.query_membership, draw.key_side, options,
                              draw.choosable.first_row()};
  kernels.options.query_mask = draw.query_mask;
  if (asks_for_probes) kernels.probe_rates = asks_for_probes->probe_rates;
  if (ops::cuda_choice_refusal(kernels).empty()) {
    const ops::ChosenSquares chosen = ops::cuda_choose_squares(kernels);
    if (chosen.probes) asks_for_probes->probes = EdgeSet::from_trusted_squares(*chosen.probes, draw.pairs);
    return EdgeSet::from_trusted_squares(chosen.squares, draw.pairs);
  }
  options.query_offset = draw.choosable.query_offset;
  if (draw.query_mask) options.query_mask = draw.choosable.rows(*draw.query_mask, 1);
  const EdgeSet sampled =
      sample_sbm_edges(draw.choosable.rows(draw.query_membership, 2), draw.key_side, options);
  const auto squares = [&](const EdgeSet& groups) {
    return EdgeSet::from_square_groups(draw.shape, draw.choosable.whole(groups), draw.pairs);
  };
  if (asks_for_probes) {
    options.probe_unit = 1;  // a square, which is one edge here
    asks_for_probes->probes = squares(sample_probe_edges(sampled, asks_for_probes->probe_rates, options));
  }
  return squares(sampled);
}

// What speaks for the groups of a request: [B, H, groups(L), D] and [B, H, groups(S), D].
ops::GroupMeans speakers_of_groups(const EdgeRequest& request, const std::optional<at::Tensor>& query_mask) {
  if (!request.is_causal)
    if (auto means = ops::cuda_group_means(request.query, request.key, query_mask, request.key_mask))
      return *means;
  return {.query = request.is_causal ? first_of_groups(request.query, query_mask)
                                     : mean_of_groups(request.query, query_mask),
          .key = mean_of_groups(request.key, request.key_mask)};
}

}  // namespace

EdgeChoice SbmEdgesImpl::choose_squares(const EdgeRequest& request) const {
  if (request.known_keys && request.query_offset > 0) return choose_grown_squares(request);
  const EdgeShape shape = request.shape();
  const std::optional<at::Tensor> query_mask = request.query_mask(), query_groups = group_mask(query_mask),
                                  key_groups = group_mask(request.key_mask);
  const ops::GroupMeans speakers = speakers_of_groups(request, query_mask);
  const Sides nodes = sides(speakers.query, speakers.key, query_groups, key_groups);

  if (request.known_keys)
    keep_grown(*request.known_keys, membership(as_read(request.query)),
               nodes.key_side.narrow(2, 0, shape.keys / kSquare));

  const ChoosableGroups choosable(request);
  SampleOptions sampling = sampling_options(options, request, is_training());
  sampling.key_mask = key_groups;
  const RequestPairs asked(request);
  const graph::SquarePairs pairs = allowed_square_pairs(request);
  EdgeLearner learner = learner_of(options, nodes.query, nodes.key_side, sampling);
  const bool has_probes = asks_for_probes(options, is_training());
  ops::ReplayedNumbers replayed;
  learner.pairs_per_head = possible_pairs(asked, false);
  replayed.pairs_per_head = pairs_again(asked, false);
  const ops::HostNumber valid{learner.pairs_per_head, replayed.pairs_per_head};

  EdgeChoice choice;
  choice.query = speakers.query_tokens, choice.key = speakers.key_tokens;
  if (has_probes) set_probe_rates(learner, replayed, options, shape_of_groups(shape), request.key_mask);
  learner.replayed = std::make_shared<const ops::ReplayedNumbers>(std::move(replayed));
  const SquareDraw draw{shape, pairs, nodes.query, nodes.key_side, query_groups, choosable};
  choice.edges = draw_squares(draw, sampling, has_probes ? &learner : nullptr);
  choice.density = ops::over(choice.edges.edges_per_head().sum(0).to(at::kDouble), ops::at_least_one(valid));
  const bool all_whole =
      !query_mask && !request.key_mask && shape.queries % kSquare == 0 && shape.keys % kSquare == 0;
  if (options.density_penalty == DensityPenalty::kExact && nodes.expected.defined() && all_whole &&
      !request.is_causal) {
    constexpr double kPairs = kSquare * kSquare;
    choice.density_penalty = ops::over(nodes.expected * kPairs, ops::at_least_one(valid));
  } else if (options.density_penalty == DensityPenalty::kExact) {
    // A square weighs what it has of valid pairs: the product of two counts.
    const auto weighed = [](const at::Tensor& membership, int64_t tokens,
                            const std::optional<at::Tensor>& mask) {
      const at::Tensor counts = tokens_in_groups(tokens, mask, membership.options().requires_grad(false));
      return membership * counts.unsqueeze(1).unsqueeze(3);
    };
    const at::Tensor expected = expected_edges(
        choosable.rows(weighed(nodes.query, shape.queries, query_mask), 2),
        weighed(nodes.key_side, shape.keys, request.key_mask), request.is_causal, choosable.query_offset);
    choice.density_penalty = ops::over(expected, ops::at_least_one(valid));
  }
  choice.learner = std::move(learner);
  if (!options.self_loops) return choice;
  return with_fixed_edges(choice, window_squares(request, 0));
}

}  // namespace edgewise
