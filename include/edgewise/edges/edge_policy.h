// EdgePolicy: what a source that chooses edges by random actions needs in order to learn (docs/math.md,
// "SAC").
//
// The actions of an item are rewarded with the log-likelihood of the right answer. policy_loss() is the
// objective whose gradient is the policy gradient; edge-level credit needs no reward: it reaches the actions
// through EdgeChoice::learner in the backward pass of attention.
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

struct PolicyWeights {
  double reinforce = 0;  // of -(R - b) log p, the policy gradient of the reward
  double entropy = 0;    // of the entropy bonus
  double baseline = 0;   // of (R - b)^2, for a learned baseline
  double distillation = 0;
};

struct EdgePolicy {
  at::Tensor log_prob;      // [B] sum of the log-probabilities of the item's actions, differentiable
  at::Tensor entropy;       // [B] mean entropy of the item's predictions in nats, differentiable
  at::Tensor baseline;      // [B] the reward expected before it is known; differentiable when it is learned
  at::Tensor reward_scale;  // scalar: advantages are multiplied by it
  at::Tensor distillation;  // [B] KL from dense attention on sampled rows; undefined without
  PolicyWeights weights;
  std::shared_ptr<RewardStatistics> rewards;  // to be told this step's rewards once it is over

  // For gradient_variance(): the projection nodes = inputs W, as the predictor used it. nodes keeps its
  // gradient.
  at::Tensor inputs;  // [B, N, embed_dim], detached
  at::Tensor nodes;   // [B, G, N, node_dim]
};

// What to add to the task loss, per item: [B]. rewards [B].
at::Tensor policy_loss(const EdgePolicy& policy, const at::Tensor& rewards);

// After backward: per item the gradient of the node projection's weight, [B, G * embed_dim * node_dim].
// Undefined when no gradient reached the nodes.
at::Tensor item_gradients(const EdgePolicy& policy);

}  // namespace edgewise
