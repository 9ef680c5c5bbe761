// How the loss teaches who chose squares: G = dL/dp of each square, the gradient of its value; or, with
// memberships, dQ^ = G T and dT = G^T Q^ over the graphs of groups (docs/math.md, "Squares").
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <functional>

#include "graph/squares/squares.h"
#include "ops/attention/attention_call.h"
#include "ops/squares/square_edge_attention.h"

namespace edgewise::ops {
namespace {

// A number per place of `squares.cols` -> one per edge of the set's groups.
at::Tensor by_groups(const EdgeSet& edges, const at::Tensor& numbers) {
  const graph::Squares& squares = *edges.squares();
  const bool in_order = squares.cols.is_same(edges.square_groups().col_indices());
  return in_order ? numbers : numbers.index_select(0, graph::listed(squares).places);
}

// Of each edge of `groups` its item, where `per_item` edges rows lie in one: [E].
at::Tensor rows_by(const EdgeSet& groups, int64_t rows) {
  return groups.edge_rows().div(std::max<int64_t>(rows, 1), "floor");
}

// dP/dp of the law, as in single edges.
at::Tensor law_slope(const EdgeLearner& learner, const EdgeSet& groups) {
  const at::Tensor p =
      edge_dot(groups, learner.query_membership.detach(), learner.key_side.detach()) + learner.exploration;
  return at::where(p < 1, (-p).exp(), at::zeros_like(p));
}

at::Tensor divided_by_rates(const at::Tensor& values, const EdgeSet& groups,
                            const std::vector<double>& rates) {
  if (std::adjacent_find(rates.begin(), rates.end(), std::not_equal_to<>()) == rates.end())
    return values / (rates.empty() ? 1.0 : rates[0]);
  const EdgeShape& shape = groups.shape();
  return values / at::tensor(rates, at::kDouble)
                      .to(values.device(), values.scalar_type())
                      .index_select(0, rows_by(groups, shape.heads * shape.queries));
}

}  // namespace

void check_square_learner(const EdgeLearner& learner, const EdgeSet& edges) {
  constexpr const char* kName = "edge_attention over squares";
  const EdgeShape groups{edges.shape().batch, edges.shape().heads, graph::groups_of(edges.shape().queries),
                         graph::groups_of(edges.shape().keys)};
  const auto check = [&](const char* name, const at::Tensor& membership, int64_t count) {
    TORCH_CHECK_VALUE(membership.dim() == 4 && membership.size(0) == groups.batch &&
                          membership.size(1) == groups.heads && membership.size(2) == count,
                      kName, ": expected ", name, " of groups of 16 tokens, [", groups.batch, ", ",
                      groups.heads, ", ", count, ", C]; got ", membership.sizes());
  };
  TORCH_CHECK_VALUE(learner.query_membership.defined() == learner.key_side.defined() &&
                        learner.values.defined() != learner.query_membership.defined(),
                    kName, ": expected a learner with values, or with query_membership and key_side; got ",
                    learner.values.defined() ? "both" : "neither or one of the two");
  if (learner.query_membership.defined()) {
    check("query_membership", learner.query_membership, groups.queries);
    check("key_side", learner.key_side, groups.keys);
  } else {
    const int64_t squares = edges.square_groups().edge_count();
    TORCH_CHECK_VALUE(learner.values.dim() == 1 && learner.values.size(0) == squares, kName,
                      ": expected learner.values [", squares, "], one per square; got ",
                      learner.values.sizes());
  }
  for (const auto& [name, set] : {std::pair("probes", &learner.probes), {"fixed edges", &learner.fixed}})
    TORCH_CHECK_VALUE(!*set || ((*set)->squares() && (*set)->shape() == edges.shape() &&
                                graph::same_pairs((*set)->square_pairs(), edges.square_pairs())),
                      kName, ": expected ", name,
                      " in squares of the same pairs as the edges. Make them with EdgeSet::from_squares");
  for (const auto& [name, set] : {std::pair("probes", &learner.probes), {"fixed edges", &learner.fixed}})
    TORCH_CHECK_VALUE(!*set || (*set)->device() == edges.device(), kName, ": expected ", name, " on ",
                      edges.device(), " as the edges; got ", (*set)->device());
  TORCH_CHECK_VALUE(!learner.values.defined() || learner.probes.has_value() == learner.probe_values.defined(),
                    kName, ": expected probe_values exactly where there are probes");
  if (learner.probe_values.defined()) {
    const int64_t probes = learner.probes->square_groups().edge_count();
    TORCH_CHECK_VALUE(learner.probe_values.dim() == 1 && learner.probe_values.size(0) == probes, kName,
                      ": expected learner.probe_values [", probes, "], one per square; got ",
                      learner.probe_values.sizes());
  }
  TORCH_CHECK_VALUE(!learner.discarded, kName,
                    ": expected no discarded edges, which only unit 1 samples; got some");
  const bool rates_may_lack = learner.values.defined() && learner.probe_rates.empty();
  TORCH_CHECK_VALUE(!learner.probes || rates_may_lack ||
                        static_cast<int64_t>(learner.probe_rates.size()) == edges.shape().batch,
                    kName, ": expected one probe rate per item (", edges.shape().batch, "); got ",
                    learner.probe_rates.size());
}

SquareMembershipGrads square_membership_grads(const EdgeLearner& learner, const EdgeSet& edges,
                                              const SquareBackward& backward,
                                              const at::Tensor& density_grad) {
  if (!density_grad.defined())
    if (auto grads = cuda_membership_grads(learner, edges, backward)) return std::move(*grads);
  // Memberships may be of another dtype than the attention; values follow them.
  const at::ScalarType target =
      learner.query_membership.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  SquareMembershipGrads result;
  const auto add = [&](const EdgeSet& groups, at::Tensor values) {
    if (learner.poisson_slope) values = values * law_slope(learner, groups).to(values.scalar_type());
    const at::Tensor rows = multiply_rows(groups, values.to(target), learner.key_side.detach());
    const at::Tensor columns = multiply_columns(groups, values.to(target), learner.query_membership.detach());
    result.query = result.query.defined() ? result.query.add_(rows) : rows;
    result.key_side = result.key_side.defined() ? result.key_side.add_(columns) : columns;
  };
  const EdgeSet& groups = edges.square_groups();
  at::Tensor values = by_groups(edges, backward.credit);
  if (density_grad.defined() && learner.pairs_per_head > 0) {
    // The sampled density counts pairs.
    const at::Tensor heads = rows_by(groups, groups.shape().queries).remainder(groups.shape().heads);
    values =
        values + (density_grad / learner.pairs_per_head).to(values.scalar_type()).index_select(0, heads) *
                     graph::pairs_per_square(*edges.squares(), edges.square_pairs());
  }
  if (learner.gradient_clip > 0) values = values.clamp(-learner.gradient_clip, learner.gradient_clip);
  if (learner.fixed) values = values.masked_fill(groups.contained_in(learner.fixed->square_groups()), 0);
  add(groups, values);
  if (backward.probe_credit.defined())
    add(learner.probes->square_groups(),
        divided_by_rates(by_groups(*learner.probes, backward.probe_credit), learner.probes->square_groups(),
                         learner.probe_rates));
  return result;
}

SquareValueGrads square_value_grads(const EdgeLearner& learner, const EdgeSet& edges,
                                    const SquareBackward& backward) {
  SquareValueGrads result;
  result.values = by_groups(edges, backward.credit).to(learner.values.scalar_type());
  if (backward.probe_credit.defined())
    result.probe_values = divided_by_rates(by_groups(*learner.probes, backward.probe_credit),
                                           learner.probes->square_groups(), learner.probe_rates)
                              .to(learner.probe_values.scalar_type());
  return result;
}

}  // namespace edgewise::ops
