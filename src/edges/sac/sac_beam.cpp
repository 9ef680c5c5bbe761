// Beam search over walks: the K best beginnings of every walker are kept and extended side by side.
//
// A walker's beams lie next to each other: [B, G, R * K, P] for states, [B, G, R, K] for scores.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "edges/sac/sac_walk.h"

namespace edgewise::sac {
namespace {

struct Beams {
  int64_t batch, groups, walkers, width;
  at::Tensor scores;  // [B, G, R, K] log-probability so far

  Beams(int64_t b, int64_t g, int64_t r, int64_t k, const at::Tensor& like)
      : batch(b), groups(g), walkers(r), width(k) {
    // All beams begin alike: only the first may be extended.
    scores = at::full({b, g, r, k}, -1e30, like.options());
    scores.select(3, 0).zero_();
  }

  // [B, G, R * K, ..] -> rows of the beams that are extended, parent [B, G, R, K].
  at::Tensor reordered(const at::Tensor& values, const at::Tensor& parent) const {
    std::vector<int64_t> split = {batch, groups, walkers, width}, sizes = values.sizes().vec();
    split.insert(split.end(), sizes.begin() + 3, sizes.end());
    at::Tensor index = parent;
    for (size_t n = 4; n < split.size(); ++n) index = index.unsqueeze(-1);
    return values.view(split).gather(3, index.expand(split)).view(sizes);
  }

  struct Extension {
    at::Tensor parent, choice;  // [B, G, R, K]
  };
  // log_p [B, G, R * K, N]; walkers that are not live [B, G, R] keep their beams.
  Extension extend(const at::Tensor& log_p, const at::Tensor& is_live) {
    const int64_t nodes = log_p.size(3);
    const at::Tensor total =
        (scores.unsqueeze(-1) + log_p.view({batch, groups, walkers, width, nodes})).flatten(3);
    const auto [best, index] = total.topk(width, -1);
    const at::Tensor live = is_live.unsqueeze(-1);
    const at::Tensor same = at::arange(width, index.options()).expand_as(index);
    scores = at::where(live, best, scores);
    return {at::where(live, index.div(nodes, "floor"), same), index.remainder(nodes)};
  }
  at::Tensor flat(const at::Tensor& values) const { return values.reshape({batch, groups, walkers * width}); }
  at::Tensor repeated(const at::Tensor& values) const { return values.repeat_interleave(width, 2); }
  // Values of the best beam: [B, G, R * K, ..] -> [B, G, R, ..].
  at::Tensor of_best(const at::Tensor& values) const {
    const at::Tensor best =
        scores.argmax(-1, true).expand({-1, -1, -1, width});  // every beam becomes the best
    return reordered(values, best).unflatten(2, {walkers, width}).select(3, 0);
  }
};

// One finished list of actions per walker becomes a result without log-probabilities.
void finish(WalkResult& result, const WalkInputs& inputs) {
  result.log_prob = at::zeros(result.destination.sizes(), inputs.query_nodes.options());
  result.entropy = result.log_prob;
  result.chosen = result.taken;
}

WalkResult rooted_beam(const SacEdgesImpl& predictor, const WalkInputs& inputs) {
  const int64_t batch = inputs.allowed.size(0), groups = inputs.allowed.size(1),
                queries = inputs.allowed.size(2);
  WalkResult result;
  const at::Tensor choosing = settle_certain(predictor.options, inputs, result);
  result.steps = longest_walk(inputs.limits, choosing);
  Beams beams(batch, groups, queries, predictor.options.beam, inputs.query_nodes);
  const at::Tensor prepared = prepare_nodes(predictor, inputs.key_nodes);
  const at::Tensor own = at::arange(queries, inputs.limits.options());
  const at::Tensor sources =
      beams.repeated(own.view({1, 1, -1}).expand({batch, groups, -1}));  // [B, G, R * K]
  at::Tensor left = beams.repeated(inputs.allowed), input = beams.repeated(inputs.query_nodes);
  at::Tensor history = at::zeros({batch, groups, queries * beams.width, result.steps}, own.options());
  std::vector<at::Tensor> taken;
  LstmState state = lstm_start(input);
  for (int64_t step = 0; step < result.steps; ++step) {
    const at::Tensor is_live = choosing & (inputs.limits.unsqueeze(1) > step);
    state = lstm_step(predictor, input, state);
    const at::Tensor live = beams.repeated(is_live);
    const at::Tensor log_p = log_probabilities(node_scores(predictor, state.hidden, prepared) +
                                                   distance_scores(predictor, inputs, state.hidden, sources),
                                               left, live);
    const auto [parent, choice] = beams.extend(log_p, is_live);
    // A walker's states, history and candidates follow the beams that survive.
    state = {beams.reordered(state.hidden, parent), beams.reordered(state.cell, parent)};
    history = beams.reordered(history, parent);
    if (!predictor.options.duplicates) left = beams.reordered(left, parent);
    const at::Tensor chosen = beams.flat(choice);  // [B, G, R * K]
    history.select(3, step).copy_(chosen);
    if (!predictor.options.duplicates) left = left.scatter(-1, chosen.unsqueeze(-1), false);
    input = pick_rows(inputs.key_nodes, chosen);
    taken.push_back(is_live);
  }
  result.destination = beams.of_best(history).flatten(2);  // [B, G, L * steps]
  result.taken = taken.empty() ? at::zeros({batch, groups, 0}, inputs.allowed.options())
                               : at::stack(taken, 3).flatten(2);
  result.source = own.repeat_interleave(result.steps).view({1, 1, -1}).expand_as(result.destination);
  finish(result, inputs);
  return result;
}

WalkResult pairs_beam(const SacEdgesImpl& predictor, const WalkInputs& inputs) {
  const int64_t batch = inputs.allowed.size(0), groups = inputs.allowed.size(1),
                queries = inputs.allowed.size(2), keys = inputs.allowed.size(3);
  WalkResult result;
  const at::Tensor choosing = settle_certain(predictor.options, inputs, result);  // [B, G, 1]
  result.steps = longest_walk(inputs.limits, choosing);
  Beams beams(batch, groups, 1, predictor.options.beam, inputs.query_nodes);
  const int64_t width = beams.width;
  const at::Tensor query_side = prepare_nodes(predictor, inputs.query_nodes);
  const at::Tensor key_side = prepare_nodes(predictor, inputs.key_nodes);
  at::Tensor left = inputs.allowed.unsqueeze(2).expand({batch, groups, width, queries, keys}).contiguous();
  at::Tensor input = predictor.start.view({1, groups, 1, -1}).expand({batch, groups, width, -1});
  at::Tensor history = at::zeros({batch, groups, width, 2 * result.steps}, inputs.limits.options());
  std::vector<at::Tensor> taken;
  LstmState state = lstm_start(input);
  const auto advance = [&](const at::Tensor& log_p, const at::Tensor& is_live, int64_t prediction) {
    const auto [parent, choice] = beams.extend(log_p, is_live);
    state = {beams.reordered(state.hidden, parent), beams.reordered(state.cell, parent)};
    history = beams.reordered(history, parent);
    left = beams.reordered(left, parent);
    const at::Tensor chosen = beams.flat(choice);
    history.select(3, prediction).copy_(chosen);
    return chosen;  // [B, G, K]
  };
  for (int64_t edge = 0; edge < result.steps; ++edge) {
    const at::Tensor is_live = choosing & (inputs.limits.view({-1, 1, 1}) > edge);
    const at::Tensor live = beams.repeated(is_live);
    state = lstm_step(predictor, input, state);
    const at::Tensor source =
        advance(log_probabilities(node_scores(predictor, state.hidden, query_side), left.any(-1), live),
                is_live, 2 * edge);
    state = lstm_step(predictor, pick_rows(inputs.query_nodes, source), state);
    const at::Tensor scores = node_scores(predictor, state.hidden, key_side) +
                              distance_scores(predictor, inputs, state.hidden, source);
    const at::Tensor open =
        left.gather(3, source.view({batch, groups, width, 1, 1}).expand({-1, -1, -1, 1, keys})).squeeze(3);
    const at::Tensor destination = advance(log_probabilities(scores, open, live), is_live, 2 * edge + 1);
    const at::Tensor from = history.select(3, 2 * edge);  // sources of the beams that survived
    if (!predictor.options.duplicates)
      left.view({batch, groups, width, -1}).scatter_(3, (from * keys + destination).unsqueeze(-1), false);
    input = pick_rows(inputs.key_nodes, destination);
    taken.push_back(is_live);
  }
  const at::Tensor best = beams.of_best(history).squeeze(2);  // [B, G, 2 * steps]
  result.source = best.slice(2, 0, best.size(2), 2);
  result.destination = best.slice(2, 1, best.size(2), 2);
  result.taken = taken.empty() ? at::zeros({batch, groups, 0}, inputs.allowed.options()) : at::cat(taken, 2);
  finish(result, inputs);
  return result;
}

}  // namespace

WalkResult beam_walk(const SacEdgesImpl& predictor, const WalkInputs& inputs) {
  const at::NoGradGuard guard;
  return predictor.options.walk == SacWalk::kRooted ? rooted_beam(predictor, inputs)
                                                    : pairs_beam(predictor, inputs);
}

}  // namespace edgewise::sac
