// A tiny problem whose every walk can be listed: the exact gradient of the expected loss by a policy's
// parameters, and what an estimator gives on average.
//
// The items of a batch are copies of one input, so a batch of B items is B independent draws, and
// item_gradients() gives each draw's own gradient of the node projection: mean, standard error and variance
// come from those.
#pragma once

#include <edgewise/edges/sac_edges.h>
#include <edgewise/ops/functional.h>

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "edges/sac_kit.h"

namespace edgewise::kit {

struct Problem {
  int64_t n;
  bool is_linear = false;  // whether a query's loss is linear in its output, or its cross-entropy
  at::Tensor q = randn({1, 1, n, 4}, 1, at::kDouble), k = randn({1, 1, n, 4}, 2, at::kDouble),
             v = randn({1, 1, n, 4}, 3, at::kDouble), tokens = randn({1, n, 4}, 4, at::kDouble),
             weight = randn({1, 1, n, 4}, 5, at::kDouble);

  EdgeRequest request(int64_t copies, uint32_t layer = 0) const {
    EdgeRequest result;
    result.query = q.expand({copies, 1, n, 4});
    result.key = k.expand({copies, 1, n, 4});
    result.tokens = tokens.expand({copies, n, 4});
    result.random = {.seed = 11, .layer = layer};
    return result;
  }
  // [B, 1, n, 4] -> [B, n].
  at::Tensor losses(const at::Tensor& output) const {
    const at::Tensor scores = (output * weight).squeeze(1);  // [B, n, 4]
    if (is_linear) return scores.sum(-1);
    const at::Tensor labels = at::arange(n).remainder(4).view({1, n, 1}).expand({scores.size(0), n, 1});
    return -(3 * scores).log_softmax(-1).gather(2, labels).squeeze(2);
  }
  at::Tensor losses_of(const EdgeChoice& choice) const {
    const int64_t copies = choice.edges.shape().batch;
    const at::Tensor query = q.expand({copies, 1, n, 4}).contiguous(),
                     key = k.expand({copies, 1, n, 4}).contiguous(),
                     value = v.expand({copies, 1, n, 4}).contiguous();
    return losses(choice.learner
                      ? functional::edge_attention(query, key, value, choice.edges, *choice.learner).output
                      : functional::edge_attention(query, key, value, choice.edges));
  }
};

// Every list of actions a walk can take, each as one item.
inline sac::WalkResult all_walks(SacWalk walk, int64_t n, int64_t alpha) {
  std::vector<std::vector<int64_t>> lists;  // of one walker: ordered, without repetition
  const int64_t length = walk == SacWalk::kRooted ? alpha : alpha * n,
                outcomes = walk == SacWalk::kRooted ? n : n * n;
  std::vector<int64_t> list;
  const std::function<void()> extend = [&] {
    if (static_cast<int64_t>(list.size()) == length) return lists.push_back(list);
    for (int64_t next = 0; next < outcomes; ++next) {
      if (std::find(list.begin(), list.end(), next) != list.end()) continue;
      list.push_back(next);
      extend();
      list.pop_back();
    }
  };
  extend();
  const auto count = static_cast<int64_t>(lists.size());
  at::Tensor table = at::empty({count, length}, at::kLong);
  for (int64_t i = 0; i < count; ++i) table[i].copy_(torch::tensor(lists[static_cast<size_t>(i)]));
  sac::WalkResult result;
  result.steps = length;
  if (walk == SacWalk::kPairs) {
    result.source = table.div(n, "floor").unsqueeze(1);
    result.destination = table.remainder(n).unsqueeze(1);
    return result;
  }
  // The walkers of a rooted walk choose independently: all combinations.
  int64_t items = 1;
  for (int64_t i = 0; i < n; ++i) items *= count;
  std::vector<at::Tensor> rows;
  at::Tensor rest = at::arange(items);
  for (int64_t i = 0; i < n; ++i) {
    rows.push_back(table.index_select(0, rest.remainder(count)));
    rest = rest.div(count, "floor");
  }
  result.destination = at::cat(rows, 1).unsqueeze(1);  // [items, 1, n * alpha]
  result.source = at::arange(n).repeat_interleave(alpha).view({1, 1, -1}).expand_as(result.destination);
  return result;
}

inline SacEdgesOptions learning_options(SacWalk walk, int64_t alpha, SacEstimator estimator) {
  SacEdgesOptions options = sac_options(1, walk, alpha);
  options.node_dim = 3;
  options.estimator = estimator;
  options.baseline = RewardBaseline::kNone;
  return options;
}

// d(E[sum of losses]) / d(node_weight) by summing over all walks.
inline at::Tensor exact_gradient(const Problem& problem, SacEdgesOptions options) {
  options.estimator = SacEstimator::kReinforce;
  SacEdges source = sac_predictor(options);
  const sac::WalkResult walks = all_walks(options.walk, problem.n, options.alpha);
  const EdgeRequest request = problem.request(walks.destination.size(0));
  const sac::WalkInputs inputs = source->walk_inputs(request);
  const sac::WalkResult result = given_walk(source, inputs, walks);
  const at::Tensor p = result.log_prob.sum({1, 2}).exp();
  TORCH_CHECK(std::abs(p.sum().item<double>() - 1) < 1e-12,
              "expected probabilities of all walks that add to 1");
  const at::Tensor losses = problem.losses_of(source->choice_of(inputs, result, request)).detach();
  (p * losses.sum(1)).sum().backward();
  return source->node_weight.grad().flatten();
}

struct Statistics {
  at::Tensor mean, error;  // of the gradient of the loss, [embed_dim * node_dim]
  double variance = 0;     // summed over its entries

  explicit Statistics(const at::Tensor& each) : mean(each.mean(0)) {
    const at::Tensor spread = each.var(0);
    error = (spread / static_cast<double>(each.size(0))).sqrt();
    variance = spread.sum().item<double>();
  }
  double worst_z(const at::Tensor& exact) const {
    return ((mean - exact) / error.clamp_min(1e-12)).abs().max().item<double>();
  }
};

}  // namespace edgewise::kit
