// What SacEdges learns from: the policy's own numbers, and a learner for the backward pass of attention.
#include <edgewise/edges/sac_edges.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "edges/sac/sac_distill.h"
#include "edges/sac/sac_inclusion.h"
#include "edges/sac/sac_walk.h"

namespace edgewise {

EdgeLearner SacEdgesImpl::make_learner(const sac::WalkInputs& inputs, const sac::WalkResult& result,
                                       const EdgeRequest& request, const EdgeSet& edges,
                                       const at::Tensor& action) const {
  EdgeLearner learner;
  learner.rule = credit_rule(Estimator::kCounterfactual, options.present_form);
  const sac::InclusionProbabilities included(*this, inputs, result, request);
  learner.values = options.policy_weight * included.of(edges, action);
  if (options.probes == 0) return learner;
  learner.probe_rates = sac::probe_rates(options, request);
  learner.probes = sac::draw_probes(options, inputs, request, edges, learner.probe_rates);
  learner.probe_values = options.policy_weight * included.of(*learner.probes);
  return learner;
}

EdgePolicy SacEdgesImpl::make_policy(const sac::WalkInputs& inputs, const sac::WalkResult& result,
                                     const EdgeRequest& request) const {
  EdgePolicy policy;
  // Where every query walks on its own its actions are its own; else they are the item's together.
  policy.log_prob = options.walk == SacWalk::kRooted && result.steps > 0
                        ? result.log_prob.unflatten(2, {-1, result.steps}).sum({1, 3})
                        : result.log_prob.sum({1, 2}).unsqueeze(1);
  policy.entropy = result.entropy.sum({1, 2}) / result.chosen.sum({1, 2}).clamp_min(1);
  policy.baseline = baseline_of(inputs, request);
  policy.reward_scale =
      (options.normalize_rewards
           ? 1 / rewards->deviation()
           : at::ones({}, at::TensorOptions().dtype(at::kDouble).device(policy.baseline.device())))
          .to(policy.log_prob.scalar_type());
  policy.weights.entropy = options.entropy_weight;
  if (options.estimator == SacEstimator::kReinforce) {
    policy.weights.reinforce = options.policy_weight;
    if (options.baseline == RewardBaseline::kLearned) policy.weights.baseline = 0.5;
  }
  if (options.estimator == SacEstimator::kPaired) policy.weights.paired = options.policy_weight;
  if (options.estimator == SacEstimator::kDistillation && is_training()) {
    policy.weights.distillation = options.policy_weight;
    policy.distillation =
        sac::distillation_loss(inputs, result, request, sac::sampled_rows(request, options.distilled_rows));
  }
  policy.rewards = rewards;
  policy.inputs = inputs.tokens.detach();
  policy.nodes = inputs.query_nodes;
  if (policy.nodes.requires_grad()) policy.nodes.retain_grad();
  return policy;
}

at::Tensor SacEdgesImpl::baseline_of(const sac::WalkInputs& inputs, const EdgeRequest& request) const {
  const int64_t batch = inputs.tokens.size(0);
  const auto real = inputs.query_nodes.options();
  switch (options.baseline) {
    case RewardBaseline::kNone:
      return at::zeros({batch}, real);
    case RewardBaseline::kRunningMean:
      return rewards->mean().to(real.dtype()).expand({batch});
    case RewardBaseline::kLearned: {
      const auto mask = request.query_mask();
      const at::Tensor tokens = inputs.tokens.detach().to(node_weight.scalar_type());
      const at::Tensor mean = mask ? tokens.masked_fill(mask->logical_not().unsqueeze(-1), 0).sum(1) /
                                         mask->sum(1, true).clamp_min(1)
                                   : tokens.mean(1);
      // forward() of a module is not const; its parameters are all that is used.
      auto hidden = value1, out = value2;
      return out->forward(hidden->forward(mean).tanh()).squeeze(1);
    }
  }
  TORCH_INTERNAL_ASSERT(false);
}

}  // namespace edgewise
