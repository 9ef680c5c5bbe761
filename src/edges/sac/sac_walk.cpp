// The rooted walk and the walk of pairs, and how a node is chosen from its distribution.
#include "edges/sac/sac_walk.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace edgewise::sac {

Chooser greedy_chooser() {
  return [](const at::Tensor& log_p, int64_t) { return log_p.argmax(-1); };
}

Chooser sampling_chooser(at::Tensor uniforms) {
  return [uniforms = std::move(uniforms)](const at::Tensor& log_p, int64_t prediction) {
    const at::Tensor p = log_p.detach().to(at::kDouble).exp();
    const at::Tensor running = p.cumsum(-1);
    const at::Tensor target = uniforms.select(-1, prediction) * running.select(-1, -1);
    const at::Tensor index = (running <= target.unsqueeze(-1)).sum(-1);
    // The first node whose running sum passes the target has p > 0. Rounding may leave none: then the
    // likeliest.
    return at::where(index < p.size(-1), index, p.argmax(-1));
  };
}

Chooser given_chooser(const WalkResult& actions, SacWalk walk) {
  if (walk == SacWalk::kRooted) {
    const at::Tensor table =  // [B, G, L, steps]
        actions.destination.view({actions.destination.size(0), actions.destination.size(1), -1,
                                  std::max<int64_t>(actions.steps, 1)});
    return [table](const at::Tensor&, int64_t prediction) { return table.select(-1, prediction); };
  }
  return [source = actions.source, destination = actions.destination](const at::Tensor&, int64_t prediction) {
    return (prediction % 2 == 0 ? source : destination).narrow(2, prediction / 2, 1);
  };
}

at::Tensor settle_certain(const SacEdgesOptions& options, const WalkInputs& inputs, WalkResult& result) {
  const bool rooted = options.walk == SacWalk::kRooted;
  const at::Tensor count = rooted ? inputs.allowed.sum(-1) : inputs.allowed.sum({2, 3}).unsqueeze(2);
  const at::Tensor limit = rooted ? inputs.limits.unsqueeze(1) : inputs.limits.view({-1, 1, 1});
  // With replacement nothing but a single candidate is certain.
  const at::Tensor forced = options.duplicates ? (count <= 1) & (limit > 0) : count <= limit;  // [B, G, R]
  result.certain = inputs.allowed & forced.unsqueeze(-1);
  return forced.logical_not() & (limit > 0);
}

int64_t longest_walk(const at::Tensor& limits, const at::Tensor& choosing) {
  if (limits.numel() == 0) return 0;
  const at::Tensor wide = limits.dim() == 2 ? limits.unsqueeze(1) : limits.view({-1, 1, 1});
  const at::Tensor lengths = wide.expand_as(choosing).masked_fill(choosing.logical_not(), 0);
  return lengths.numel() == 0 ? 0 : lengths.max().item<int64_t>();
}

WalkResult rooted_walk(const SacEdgesImpl& predictor, const WalkInputs& inputs, const Chooser& choose,
                       bool keep_distributions) {
  const int64_t batch = inputs.allowed.size(0), groups = inputs.allowed.size(1),
                queries = inputs.allowed.size(2);
  WalkResult result;
  const at::Tensor choosing = settle_certain(predictor.options, inputs, result);
  result.steps = longest_walk(inputs.limits, choosing);

  std::vector<at::Tensor> destinations, taken, log_probs, entropies;
  const at::Tensor prepared = prepare_nodes(predictor, inputs.key_nodes);
  at::Tensor left = inputs.allowed, input = inputs.query_nodes;
  LstmState state = lstm_start(input);
  for (int64_t step = 0; step < result.steps; ++step) {
    const at::Tensor is_live = choosing & (inputs.limits.unsqueeze(1) > step);  // [B, G, L]
    state = lstm_step(predictor, input, state);
    const at::Tensor scores =
        node_scores(predictor, state.hidden, prepared) + distance_scores(predictor, inputs, state.hidden);
    const at::Tensor log_p = log_probabilities(scores, left, is_live);
    const at::Tensor chosen = choose(log_p, step);
    destinations.push_back(chosen);
    taken.push_back(is_live);
    log_probs.push_back(pick(log_p, chosen).masked_fill(is_live.logical_not(), 0));
    entropies.push_back(entropy_of(log_p).masked_fill(is_live.logical_not(), 0));
    if (keep_distributions) result.distributions.push_back({log_p, left, is_live});
    if (!predictor.options.duplicates) left = left.scatter(-1, chosen.unsqueeze(-1), false);
    input = pick_rows(inputs.key_nodes, chosen);
  }

  const auto joined = [&](const std::vector<at::Tensor>& steps, at::ScalarType dtype) {
    if (steps.empty()) return at::zeros({batch, groups, 0}, inputs.allowed.options().dtype(dtype));
    return at::stack(steps, 3).flatten(2);  // [B, G, L * steps]
  };
  const at::ScalarType real = inputs.query_nodes.scalar_type();
  result.destination = joined(destinations, at::kLong);
  result.taken = joined(taken, at::kBool);
  result.chosen = result.taken;
  result.log_prob = joined(log_probs, real);
  result.entropy = joined(entropies, real);
  result.source = at::arange(queries, result.destination.options())
                      .repeat_interleave(result.steps)
                      .view({1, 1, -1})
                      .expand_as(result.destination);
  return result;
}

WalkResult pairs_walk(const SacEdgesImpl& predictor, const WalkInputs& inputs, const Chooser& choose) {
  const int64_t batch = inputs.allowed.size(0), groups = inputs.allowed.size(1),
                keys = inputs.allowed.size(3);
  WalkResult result;
  const at::Tensor choosing = settle_certain(predictor.options, inputs, result);  // [B, G, 1]
  result.steps = longest_walk(inputs.limits, choosing);

  std::vector<at::Tensor> sources, destinations, taken, log_probs, entropies;
  const at::Tensor query_side = prepare_nodes(predictor, inputs.query_nodes);
  const at::Tensor key_side = prepare_nodes(predictor, inputs.key_nodes);
  at::Tensor left = inputs.allowed.clone();
  at::Tensor input = predictor.start.view({1, groups, 1, -1}).expand({batch, groups, 1, -1});
  LstmState state = lstm_start(input);
  for (int64_t edge = 0; edge < result.steps; ++edge) {
    const at::Tensor is_live = choosing & (inputs.limits.view({-1, 1, 1}) > edge);  // [B, G, 1]
    const at::Tensor stopped = is_live.logical_not();

    state = lstm_step(predictor, input, state);
    const at::Tensor source_log_p = log_probabilities(node_scores(predictor, state.hidden, query_side),
                                                      left.any(-1).unsqueeze(2), is_live);  // [B, G, 1, L]
    const at::Tensor source = choose(source_log_p, 2 * edge);                               // [B, G, 1]
    input = pick_rows(inputs.query_nodes, source);

    state = lstm_step(predictor, input, state);
    const at::Tensor open =  // the source's row of candidates: [B, G, 1, S]
        left.gather(2, source.unsqueeze(-1).expand({batch, groups, 1, keys}));
    const at::Tensor scores = node_scores(predictor, state.hidden, key_side) +
                              distance_scores(predictor, inputs, state.hidden, source);
    const at::Tensor log_p = log_probabilities(scores, open, is_live);
    const at::Tensor destination = choose(log_p, 2 * edge + 1);
    input = pick_rows(inputs.key_nodes, destination);

    if (!predictor.options.duplicates) {
      left.view({batch, groups, -1}).scatter_(2, source * keys + destination, false);
    }
    sources.push_back(source);
    destinations.push_back(destination);
    taken.push_back(is_live);
    log_probs.push_back((pick(source_log_p, source) + pick(log_p, destination)).masked_fill(stopped, 0));
    entropies.push_back((entropy_of(source_log_p) + entropy_of(log_p)).masked_fill(stopped, 0));
  }

  const auto joined = [&](const std::vector<at::Tensor>& steps, at::ScalarType dtype) {
    return steps.empty() ? at::zeros({batch, groups, 0}, inputs.allowed.options().dtype(dtype))
                         : at::cat(steps, 2);
  };
  const at::ScalarType real = inputs.query_nodes.scalar_type();
  result.source = joined(sources, at::kLong);
  result.destination = joined(destinations, at::kLong);
  result.taken = joined(taken, at::kBool);
  result.chosen = result.taken;
  result.log_prob = joined(log_probs, real);
  result.entropy = joined(entropies, real);
  return result;
}

}  // namespace edgewise::sac
