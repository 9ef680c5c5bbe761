#include "edges/sac/sac_inclusion.h"

#include <edgewise/edges/patterns.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "edges/policy_probes.h"
#include "edges/sac/sac_inputs.h"
#include "ops/attention/edge_scores.h"

namespace edgewise::sac {
namespace {

// [B, G, N, W] for all H heads.
at::Tensor of_heads(const at::Tensor& groups, int64_t heads) {
  if (groups.size(1) == heads) return groups.contiguous();
  return groups.expand({groups.size(0), heads, groups.size(2), groups.size(3)}).contiguous();
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
  if (walk.distributions.empty() && walk.steps > 0) recompute_steps();
}

// The kernels keep neither states nor distributions. The states follow from the actions at a cost that is
// linear in them, and of the softmax a kernel has given the log-probability of what was chosen:
// log pi_tj = s_tj + (log pi_tc - s_tc), c chosen at t.
void InclusionProbabilities::recompute_steps() {
  const EdgeShape shape = request_.shape();
  const int64_t batch = shape.batch, queries = shape.queries, width = inputs_.key_nodes.size(3);
  const std::vector<int64_t> wide = {batch, groups_, queries, walk_.steps};
  const at::Tensor chosen = walk_.destination.view(wide).clamp(0, std::max<int64_t>(shape.keys - 1, 0));
  const at::Tensor log_prob = walk_.log_prob.view(wide);
  const at::Tensor nodes = inputs_.key_nodes.reshape({-1, width});
  const auto whole = chosen.options();
  const at::Tensor first_key =  // of each group
      (at::arange(batch * groups_, whole) * shape.keys).view({batch, groups_, 1});
  const at::Tensor place = at::arange(queries, whole) + request_.query_offset;
  const bool with_distance = predictor_.options.distance == DistanceEncoding::kBias;
  const int64_t buckets = with_distance ? predictor_.distance_table.size(1) : 0;
  const at::Tensor first_bucket = (at::arange(groups_, whole) * buckets).view({1, groups_, 1});

  LstmState state = lstm_start(inputs_.query_nodes);
  at::Tensor input = inputs_.query_nodes;
  for (int64_t step = 0; step < walk_.steps; ++step) {
    state = lstm_step(predictor_, input, state);
    const at::Tensor key = chosen.select(3, step);  // [B, G, L]
    input = looked_up(nodes, first_key + key);
    at::Tensor score = (state.hidden * input).sum(-1);
    if (with_distance) {
      const at::Tensor bucket = bucket_of_distance(key - place, buckets, predictor_.options.max_distance);
      score = score + looked_up(predictor_.distance_table.view({-1, 1}), first_bucket + bucket).squeeze(-1);
    }
    const at::Tensor level = log_prob.select(3, step) - score;
    steps_.push_back({of_heads(at::cat({state.hidden, level.unsqueeze(-1)}, -1), shape.heads)});
  }
  const at::Tensor ones =
      at::ones_like(inputs_.key_nodes.select(3, 0)).unsqueeze(-1).expand({-1, -1, shape.keys, 1});
  keys_ = of_heads(at::cat({inputs_.key_nodes, ones}, -1), shape.heads);
}

at::Tensor InclusionProbabilities::group_rows(const EdgeSet& edges) const {
  return rows_in_groups(edges, groups_);
}

at::Tensor InclusionProbabilities::distance_bias(const EdgeSet& edges) const {
  if (steps_.empty() || predictor_.options.distance != DistanceEncoding::kBias) return {};
  const at::Tensor& table = predictor_.distance_table;  // [G, buckets]
  at::Tensor bucket =
      bucket_of_distance(edge_distances(edges, request_), table.size(1), predictor_.options.max_distance);
  if (groups_ > 1) {
    const EdgeShape& shape = edges.shape();
    const at::Tensor head =
        edges.edge_rows().div(std::max<int64_t>(shape.queries, 1), "floor").remainder(shape.heads);
    bucket = bucket + head * table.size(1);
  }
  return looked_up(table.view({-1, 1}), bucket).squeeze(-1);
}

at::Tensor InclusionProbabilities::log_probability(const EdgeSet& edges, const at::Tensor& rows,
                                                   const at::Tensor& bias, size_t step) const {
  if (steps_.empty()) {
    const at::Tensor places = rows * edges.shape().keys + edges.col_indices();
    return looked_up(walk_.distributions[step].log_p.reshape({-1, 1}), places).squeeze(-1);
  }
  const at::Tensor score = ops::edge_scores(edges, steps_[step].states, keys_);
  return bias.defined() ? score + bias : score;
}

at::Tensor InclusionProbabilities::of(const EdgeSet& edges, const at::Tensor& action) const {
  const auto real = inputs_.query_nodes.options().requires_grad(false);
  at::Tensor left_out = at::zeros({edges.edge_count()}, real);  // log prod_t (1 - pi_tj)
  if (walk_.steps == 0 || edges.edge_count() == 0) return left_out;
  const at::Tensor rows = group_rows(edges), bias = distance_bias(edges);
  const at::Tensor chosen = walk_.chosen.reshape({-1, walk_.steps});  // [B * G * L, steps]
  for (int64_t step = 0; step < walk_.steps; ++step) {
    at::Tensor open = chosen.select(1, step).index_select(0, rows);
    // Once chosen it cannot be chosen again.
    if (action.defined()) open = open & (action.remainder(walk_.steps) >= step);
    // A certainty has no slope, and 1 - pi must not be 0.
    constexpr double kAlmostOne = 1 - 1e-6;
    const at::Tensor pi = log_probability(edges, rows, bias, static_cast<size_t>(step))
                              .clamp_max(0)
                              .exp()
                              .clamp_max(kAlmostOne);
    left_out = left_out + at::where(open, (-pi).log1p(), at::zeros({}, real));
  }
  const at::Tensor included = -left_out.expm1();
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
  if (!window && options.self_edges == SelfEdges::kAllowed) return drawn;
  const at::Tensor distance = edge_distances(drawn, request).abs();
  const int64_t nearest = options.self_edges == SelfEdges::kAllowed ? 0 : 1;
  const at::Tensor far_enough = distance >= nearest;
  return drawn.kept(window ? far_enough & (distance <= window->width()) : far_enough);
}

}  // namespace edgewise::sac
