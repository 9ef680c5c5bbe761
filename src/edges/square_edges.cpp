#include <edgewise/edges/square_edges.h>

#include <edgewise/edges/patterns.h>
#include <edgewise/graph/square_lists.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/zeros.h>

#include <ostream>
#include <utility>

#include "edges/range_edges.h"
#include "edges/sbm/sbm_pairs.h"
#include "edges/square_nodes.h"
#include "edges/square_patterns.h"

namespace edgewise {
namespace {

using graph::kSquare;

// The square of each query group with itself.
EdgeSet own_groups(const EdgeShape& groups, int64_t query_offset, at::Device device) {
  const at::Tensor own =
      at::arange(groups.queries, at::TensorOptions().dtype(at::kLong).device(device)) + query_offset;
  return range_edges(groups, own.unsqueeze(0), (own + 1).unsqueeze(0));
}

// [B, N, width] -> [B, groups(N), width].
at::Tensor speakers(const at::Tensor& tokens, const std::optional<at::Tensor>& mask, bool first) {
  const at::Tensor one_head = tokens.unsqueeze(1);
  return (first ? first_of_groups(one_head, mask) : mean_of_groups(one_head, mask)).squeeze(1);
}

EdgeRequest request_of_groups(const EdgeRequest& request) {
  const std::optional<at::Tensor> query_mask = request.query_mask();
  EdgeRequest groups;
  groups.query = request.is_causal ? first_of_groups(request.query, query_mask)
                                   : mean_of_groups(request.query, query_mask);
  groups.key = mean_of_groups(request.key, request.key_mask);
  groups.key_mask = group_mask(request.key_mask);
  groups.is_causal = request.is_causal;
  groups.random = request.random;
  groups.query_offset = request.query_offset / kSquare;
  if (request.tokens.defined()) {
    groups.tokens = speakers(request.tokens, query_mask, request.is_causal);
    const bool one_side = !request.key_tokens.defined();
    if (!one_side || request.is_causal)
      groups.key_tokens =
          speakers(one_side ? request.tokens : request.key_tokens, request.key_mask, /*first=*/false);
  }
  if (request.present) {
    TORCH_CHECK_VALUE(
        request.present->squares(),
        "SquareEdges: expected edges that are present already in squares; got single edges. Give "
        "the pattern the unit 16 as well");
    groups.present = request.present->square_groups();
  }
  if (request.is_causal) {
    const EdgeSet own = own_groups(groups.shape(), groups.query_offset, request.query.device());
    groups.present = groups.present ? groups.present->united_with(own) : own;
  }
  return groups;
}

// Where each edge's number lies in [B, H, L, S].
at::Tensor places_of(const EdgeSet& edges) {
  return edges.edge_rows() * edges.shape().keys + edges.col_indices();
}

// The numbers as memberships, p_IJ = P_I . e_J: so a square's credit reaches its number, and no other.
EdgeLearner learner_of_squares(const EdgeLearner& groups, const EdgeSet& edges, const EdgeRequest& request,
                               const graph::SquarePairs& pairs) {
  TORCH_CHECK_VALUE(groups.values.defined(),
                    "SquareEdges: expected a source that learns by values, one number per edge; got one with "
                    "memberships");
  const EdgeShape& shape = edges.shape();
  EdgeLearner learner;
  learner.rule = groups.rule;
  at::Tensor numbers = at::zeros({shape.pairs()}, groups.values.options().requires_grad(false))
                           .index_put({places_of(edges)}, groups.values);
  if (groups.probes) {
    numbers = numbers.index_put({places_of(*groups.probes)}, groups.probe_values);
    learner.probes = EdgeSet::from_square_groups(request.shape(), *groups.probes, pairs);
    learner.probe_rates = groups.probe_rates;
  }
  learner.query_membership = numbers.view({shape.batch, shape.heads, shape.queries, shape.keys});
  learner.key_side = at::eye(shape.keys, numbers.options().requires_grad(false))
                         .expand({shape.batch, shape.heads, shape.keys, shape.keys});
  learner.pairs_per_head = possible_pairs(RequestPairs(request), /*count_padding=*/false);
  return learner;
}

}  // namespace

SquareEdges::SquareEdges(EdgeSourcePtr source) : source_(std::move(source)) {
  TORCH_CHECK_VALUE(source_, "SquareEdges: expected a source; got none");
  register_module("groups", source_);
}

EdgeChoice SquareEdges::choose(const EdgeRequest& request) {
  TORCH_CHECK_VALUE(!request.known_keys, "SquareEdges: expected no growing sequence; got one. ",
                    growth_refusal());
  TORCH_CHECK_VALUE(!request.relations,
                    "SquareEdges: expected no relations, which are between tokens; got some. Use unit 1");
  TORCH_CHECK_VALUE(request.query_offset % kSquare == 0,
                    "SquareEdges: expected queries that begin with a group of 16, at a multiple of it; got "
                    "query_offset ",
                    request.query_offset);
  const EdgeRequest groups = request_of_groups(request);
  const EdgeChoice chosen = allowed_choice(*source_, groups);
  const graph::SquarePairs pairs = allowed_square_pairs(request);
  EdgeChoice choice;
  choice.edges = EdgeSet::from_square_groups(request.shape(), chosen.edges, pairs);
  choice.policy = chosen.policy;
  if (choice.policy) choice.policy->unit = kSquare;
  if (chosen.learner) choice.learner = learner_of_squares(*chosen.learner, chosen.edges, request, pairs);
  return choice;
}

std::string SquareEdges::growth_refusal() const {
  return "groups of 16 queries choose together, and a growing sequence ends inside of a group; use "
         "attention.unit = 1";
}

void SquareEdges::pretty_print(std::ostream& stream) const {
  stream << "edgewise::SquareEdges";
}

}  // namespace edgewise
