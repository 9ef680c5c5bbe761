#include "edges/sac/sac_inclusion.h"

#include <edgewise/edges/patterns.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "edges/policy_probes.h"
#include "edges/sac/sac_inputs.h"
#include "ops/attention/learners/edge_scores.h"
#include "ops/attention/learners/look_up.h"

namespace edgewise::sac {
namespace {

// [B, G, ..] for all H heads.
at::Tensor of_heads(const at::Tensor& groups, int64_t heads) {
  std::vector<int64_t> sizes = groups.sizes().vec();
  sizes[1] = heads;
  return groups.expand(sizes).contiguous();
}

// left [B, H, L, T, W], right [B, H, S, W]: left_it . right_j of every edge (i, j), [E, T].
at::Tensor scores_of_steps(const EdgeSet& edges, const at::Tensor& left, const at::Tensor& right) {
  const EdgeShape& shape = edges.shape();
  const int64_t steps = left.size(3), width = left.size(4), count = edges.edge_count();
  const at::Tensor rows = edges.edge_rows();
  if (!left.is_cpu()) {
    const at::Tensor keys =
        rows.div(std::max<int64_t>(shape.queries, 1), "floor") * shape.keys + edges.col_indices();
    const at::Tensor of_rows = ops::looked_up(left.view({-1, steps * width}), rows),
                     of_keys = ops::looked_up(right.view({-1, width}), keys);
    return (of_rows.view({count, steps, width}) * of_keys.unsqueeze(1)).sum(2);
  }
  // A query for every step: steps of a row lie behind each other, and each has all of the row's edges.
  const at::Tensor offsets = edges.row_offsets(), degrees = offsets.diff();
  const at::Tensor first = offsets.narrow(0, 0, shape.rows()) * steps;  // of each row
  const at::Tensor step = at::arange(steps, offsets.options());
  const at::Tensor begins = first.unsqueeze(1) + degrees.unsqueeze(1) * step;  // [rows, T]
  // Where each edge stands at each step: [E, T].
  const at::Tensor within = at::arange(count, offsets.options()) - offsets.index_select(0, rows);
  const at::Tensor places = (begins.index_select(0, rows) + within.unsqueeze(1)).flatten();
  const at::Tensor columns = at::empty({count * steps}, edges.col_indices().options());
  columns.index_copy_(0, places, edges.col_indices().unsqueeze(1).expand({count, steps}).flatten());
  const EdgeSet each = EdgeSet::from_trusted_csr(
      {shape.batch, shape.heads, shape.queries * steps, shape.keys},
      at::cat({begins.flatten(), offsets.narrow(0, shape.rows(), 1) * steps}), columns);
  const at::Tensor scores = ops::edge_scores(each, left.flatten(2, 3), right);
  return scores.index_select(0, places).view({count, steps});
}

// j - (query_offset + i) of every edge.
at::Tensor edge_distances(const EdgeSet& edges, const EdgeRequest& request) {
  const at::Tensor query = edges.edge_rows().remainder(std::max<int64_t>(edges.shape().queries, 1));
  return edges.col_indices().to(at::kLong) - query - request.query_offset;
}

}  // namespace

InclusionProbabilities::InclusionProbabilities(const SacEdgesImpl& predictor, const WalkInputs& inputs,
                                               const WalkResult& walk, const EdgeRequest& request)
    : predictor_(predictor),
      inputs_(inputs),
      walk_(walk),
      request_(request),
      groups_(inputs.query_nodes.size(1)) {
  if (walk.distributions.empty() && walk.steps > 0) read_states();
}

// The kernels keep no distributions. Of the softmax they have given the log-probability of what was chosen:
// log pi_tj = s_tj + (log pi_tc - s_tc), c chosen at t.
void InclusionProbabilities::read_states() {
  const EdgeShape shape = request_.shape();
  const int64_t batch = shape.batch, queries = shape.queries, width = inputs_.key_nodes.size(3);
  const std::vector<int64_t> wide = {batch, groups_, queries, walk_.steps};
  const at::Tensor chosen = walk_.destination.view(wide);
  const auto whole = chosen.options();
  const at::Tensor first_key =  // of each group
      (at::arange(batch * groups_, whole) * shape.keys).view({batch, groups_, 1, 1});
  const at::Tensor nodes =  // [B, G, L, T, P]
      ops::looked_up(inputs_.key_nodes.reshape({-1, width}), first_key + chosen);
  at::Tensor score = (walk_.states * nodes).sum(-1);
  if (predictor_.options.distance == DistanceEncoding::kBias) {
    const at::Tensor place = (at::arange(queries, whole) + request_.query_offset).unsqueeze(1);
    const at::Tensor first_bucket =
        (at::arange(groups_, whole) * predictor_.distance_table.size(1)).view({1, groups_, 1, 1});
    score = score + distance_bias(chosen - place, first_bucket);
  }
  const at::Tensor level = walk_.log_prob.view(wide) - score;
  states_ = of_heads(at::cat({walk_.states, level.unsqueeze(-1)}, -1), shape.heads);
  const at::Tensor ones =
      at::ones_like(inputs_.key_nodes.select(3, 0)).unsqueeze(-1).expand({-1, -1, shape.keys, 1});
  keys_ = of_heads(at::cat({inputs_.key_nodes, ones}, -1), shape.heads);
}

at::Tensor InclusionProbabilities::group_rows(const EdgeSet& edges) const {
  return rows_in_groups(edges, groups_);
}

at::Tensor InclusionProbabilities::distance_bias(const at::Tensor& distance,
                                                 const at::Tensor& first_bucket) const {
  const DistanceRange range = distance_range(predictor_, request_);
  const at::Tensor bucket = known_buckets(range).take(distance - range.begin);
  return ops::looked_up(predictor_.distance_table.view({-1, 1}), bucket + first_bucket).squeeze(-1);
}

at::Tensor InclusionProbabilities::log_pi(const EdgeSet& edges, const at::Tensor& rows) const {
  if (!states_.defined()) {
    const at::Tensor places = rows * edges.shape().keys + edges.col_indices();
    std::vector<at::Tensor> steps;
    for (const WalkStep& step : walk_.distributions)
      steps.push_back(ops::looked_up(step.log_p.reshape({-1, 1}), places));
    return at::cat(steps, 1);
  }
  const at::Tensor scores = scores_of_steps(edges, states_, keys_);
  if (predictor_.options.distance != DistanceEncoding::kBias) return scores;
  const EdgeShape& shape = edges.shape();
  const at::Tensor group =
      groups_ == 1 ? at::zeros({}, rows.options())
                   : edges.edge_rows().div(std::max<int64_t>(shape.queries, 1), "floor").remainder(groups_);
  return scores + distance_bias(edge_distances(edges, request_), group * predictor_.distance_table.size(1))
                      .unsqueeze(1);
}

at::Tensor InclusionProbabilities::of(const EdgeSet& edges, const at::Tensor& action) const {
  const auto real = inputs_.query_nodes.options().requires_grad(false);
  if (walk_.steps == 0 || edges.edge_count() == 0) return at::zeros({edges.edge_count()}, real);
  const at::Tensor rows = group_rows(edges);
  at::Tensor open = walk_.chosen.reshape({-1, walk_.steps}).index_select(0, rows);  // [E, T]
  // Once chosen it cannot be chosen again.
  if (action.defined())
    open = open & (at::arange(walk_.steps, action.options()) <= action.remainder(walk_.steps).unsqueeze(1));
  // A certainty has no slope, and 1 - pi must not be 0.
  constexpr double kAlmostOne = 1 - 1e-6;
  const at::Tensor zero = at::zeros({}, real), level = log_pi(edges, rows).clamp_max(0);  // [E, T]
  const at::Tensor pi = level.exp().clamp_max(kAlmostOne);
  const at::Tensor left_out = at::where(open, (-pi).log1p(), zero).sum(1);  // log prod_t (1 - pi_tj)
  at::Tensor included = -left_out.expm1();
  if (const double least = predictor_.options.least_slope; least > 0) {
    // dp / d log pi of all steps together, which share the log-probability's change.
    const at::Tensor slope = (left_out.exp() * at::where(open, pi / (1 - pi), zero).sum(1)).detach(),
                     mean = at::where(open, level, zero).sum(1) / open.sum(1).clamp_min(1);
    included = with_least_slope(included, mean, slope, least);
  }
  return action.defined() ? included.masked_fill(action < 0, 0) : included;
}

std::vector<double> probe_rates(const SacEdgesOptions& options, const EdgeRequest& request) {
  const auto* const window = dynamic_cast<const WindowEdges*>(options.candidates.get());
  const int64_t nearby = !window ? 0 : (request.is_causal ? 1 : 2) * window->width() + 1;
  return edgewise::probe_rates(request, options.probes, nearby);
}

EdgeSet draw_probes(const SacEdgesOptions& options, const WalkInputs& inputs, const EdgeRequest& request,
                    const EdgeSet& edges, const std::vector<double>& rates) {
  const EdgeSet drawn = edgewise::draw_probes(request, edges, rates);
  if (inputs.allowed.defined())
    return drawn.kept(
        inputs.allowed.flatten().index_select(0, places_in_groups(drawn, inputs.allowed.size(1))));
  const auto* const window = dynamic_cast<const WindowEdges*>(options.candidates.get());
  const int64_t gap = *walk_gap(options, request);
  if (!window && gap < 0) return drawn;
  const at::Tensor distance = edge_distances(drawn, request).abs();
  const at::Tensor far_enough = distance > gap;
  return drawn.kept(window ? far_enough & (distance <= window->width()) : far_enough);
}

}  // namespace edgewise::sac
