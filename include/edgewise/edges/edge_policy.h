// EdgePolicy: what a source that chooses edges by random actions needs in order to learn (docs/math.md,
// "SAC").
//
// Three estimators teach a policy. `counterfactual` needs no reward: it reaches the probabilities through
// EdgeChoice::learner in the backward pass of attention. `paired` compares two draws of the same items,
// target by target (paired_loss()). `reinforce`, as published, rewards an item's actions with the
// log-likelihood of its right answers (policy_loss()).
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/nn/module.h>

#include <memory>

namespace edgewise {

// Running mean and spread of the rewards seen so far, exponentially forgetting. Kept in buffers, so that a
// checkpoint holds them.
class RewardStatistics : public torch::nn::Module {
 public:
  explicit RewardStatistics(double decay);

  // Before the first reward: mean 0, deviation 1.
  at::Tensor mean() const;       // scalar, double
  at::Tensor deviation() const;  // scalar, double
  // One step's rewards [B], after they have been used.
  void observe(const at::Tensor& rewards);

 private:
  double decay_;
  at::Tensor weight_, sum_, squares_;
};

// How a policy decides in evaluation: by drawing, as it was trained, or by what is likeliest.
enum class PolicyDecoding { kSample, kGreedy };

struct PolicyWeights {
  double reinforce = 0;  // of -(R - b) log p, the policy gradient of the reward
  double paired = 0;     // of the policy gradient from two draws; asks for the second
  double entropy = 0;    // of the entropy bonus
  double baseline = 0;   // of (R - b)^2, for a learned baseline
  double distillation = 0;
};

struct EdgePolicy {
  // Of each query's actions, [B, L], or of all of an item's, [B, 1], where they depend on those of other
  // queries: sums of log-probabilities, differentiable. Queries that act together, `unit` in a row, have one.
  at::Tensor log_prob;
  int64_t unit = 1;
  at::Tensor entropy;       // [B] mean entropy of the item's predictions in nats, differentiable
  at::Tensor baseline;      // [B] the reward expected before it is known; differentiable when it is learned
  at::Tensor reward_scale;  // scalar: advantages are multiplied by it
  at::Tensor distillation;  // [B] KL from dense attention on sampled rows; undefined without
  PolicyWeights weights;
  // Whether a query's actions reach its own output alone, as in the last layer of a stack that uses them.
  bool reaches_own_query_only = false;
  std::shared_ptr<RewardStatistics> rewards;  // to be told this step's rewards once it is over

  // For gradient_variance(): the projection nodes = inputs W, as the predictor used it. nodes keeps its
  // gradient.
  at::Tensor inputs;  // [B, N, embed_dim], detached
  at::Tensor nodes;   // [B, G, N, node_dim]
};

// What to add to the task loss, per item: [B]. rewards [B].
at::Tensor policy_loss(const EdgePolicy& policy, const at::Tensor& rewards);

// Two draws of the same items, each through the whole model. The gradient of
//   1/2 sum_t (loss_t - loss'_t) (log p - log p')
// is an unbiased estimate of that of the expected sum of losses: what the other draw lost is a baseline that
// does not depend on this one. t runs over the queries that have a target of their own where the actions
// reach that query alone, else over items. Losses [B], or [B, N] with 0 where there is no target; per item:
// [B].
at::Tensor paired_loss(const EdgePolicy& policy, const EdgePolicy& other, const at::Tensor& losses,
                       const at::Tensor& other_losses);

// After backward: per item the gradient of the node projection's weight, [B, G * embed_dim * node_dim].
// Undefined when no gradient reached the nodes.
at::Tensor item_gradients(const EdgePolicy& policy);

}  // namespace edgewise
