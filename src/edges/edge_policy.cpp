#include <edgewise/edges/edge_policy.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace edgewise {

RewardStatistics::RewardStatistics(double decay) : decay_(decay) {
  TORCH_CHECK_VALUE(decay >= 0 && decay < 1, "RewardStatistics: expected a decay in [0, 1); got ", decay);
  weight_ = register_buffer("weight", at::zeros({}, at::kDouble));
  sum_ = register_buffer("sum", at::zeros({}, at::kDouble));
  squares_ = register_buffer("squares", at::zeros({}, at::kDouble));
}

at::Tensor RewardStatistics::mean() const {
  return sum_ / weight_.clamp_min(1e-12);
}

at::Tensor RewardStatistics::deviation() const {
  const at::Tensor variance = (squares_ / weight_.clamp_min(1e-12) - mean().square()).clamp_min(0);
  // A spread of nothing (one reward, or all alike) must not blow advantages up.
  return at::where(variance > 1e-12, variance.sqrt(), at::ones_like(variance));
}

void RewardStatistics::observe(const at::Tensor& rewards) {
  if (rewards.numel() == 0) return;
  const at::NoGradGuard guard;
  const at::Tensor values = rewards.detach().to(at::kDouble);
  const double fresh = 1 - decay_;
  weight_.mul_(decay_).add_(fresh);
  sum_.mul_(decay_).add_(values.mean() * fresh);
  squares_.mul_(decay_).add_(values.square().mean() * fresh);
}

at::Tensor policy_loss(const EdgePolicy& policy, const at::Tensor& rewards) {
  const PolicyWeights& weights = policy.weights;
  const at::Tensor reward = rewards.detach().to(policy.log_prob.scalar_type());
  const at::Tensor missed = reward - policy.baseline;  // [B]
  at::Tensor loss = at::zeros_like(reward);
  if (weights.reinforce != 0)
    loss = loss - weights.reinforce * (missed.detach() * policy.reward_scale) * policy.log_prob.sum(1);
  if (weights.entropy != 0) loss = loss - weights.entropy * policy.entropy;
  if (weights.baseline != 0) loss = loss + weights.baseline * missed.square();
  if (weights.distillation != 0 && policy.distillation.defined())
    loss = loss + weights.distillation * policy.distillation;
  return loss;
}

at::Tensor paired_loss(const EdgePolicy& policy, const EdgePolicy& other, const at::Tensor& losses,
                       const at::Tensor& other_losses) {
  at::Tensor lost = (losses - other_losses).detach().to(policy.log_prob.scalar_type());
  const int64_t rows = policy.log_prob.size(1), unit = policy.unit;
  const bool by_query =
      policy.reaches_own_query_only && lost.dim() == 2 && (lost.size(1) + unit - 1) / unit == rows;
  if (by_query && unit > 1)
    lost = at::constant_pad_nd(lost, {0, rows * unit - lost.size(1)}, 0).unflatten(1, {rows, unit}).sum(2);
  if (!by_query) lost = lost.dim() == 2 ? lost.sum(1, true) : lost.unsqueeze(1);
  return (0.5 * policy.weights.paired) * (lost * (policy.log_prob - other.log_prob)).sum(1);
}

at::Tensor item_gradients(const EdgePolicy& policy) {
  const at::Tensor gradient = policy.nodes.defined() ? policy.nodes.grad() : at::Tensor();
  if (!gradient.defined()) return {};
  return at::einsum("bne,bgnp->bgep", {policy.inputs.to(gradient.scalar_type()), gradient}).flatten(1);
}

}  // namespace edgewise
