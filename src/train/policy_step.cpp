#include "train/policy_step.h"

#include <algorithm>

#include <torch/types.h>
#include <torch/utils.h>

#include "train/loss.h"

namespace edgewise::train {

at::Tensor PolicyStep::loss(const ModelOutput& output, const data::Batch& part) {
  const at::Tensor rewards = item_rewards(output.logits, part);  // [B]
  rewards_.push_back(rewards);
  const double layers = static_cast<double>(output.policies.size());
  report_.reward += rewards.sum().item<double>() / total_;
  at::Tensor loss = at::zeros({}, output.logits.options().dtype(at::kFloat));
  for (const EdgePolicy& policy : output.policies) {
    loss = loss + policy_loss(policy, rewards).sum().to(at::kFloat) / total_;
    report_.baseline += policy.baseline.sum().item<double>() / (total_ * layers);
    report_.entropy += policy.entropy.sum().item<double>() / (total_ * layers);
    report_.log_prob += policy.log_prob.sum().item<double>() / total_;
    if (std::ranges::find(baselines_, policy.rewards) == baselines_.end())
      baselines_.push_back(policy.rewards);
  }
  return loss;
}

void PolicyStep::after_backward(const ModelOutput& output) {
  moments_.resize(std::max(moments_.size(), output.policies.size()));
  for (size_t n = 0; n < output.policies.size(); ++n) {
    at::Tensor each = item_gradients(output.policies[n]);  // [B, entries]
    if (!each.defined()) continue;
    // The loss is a mean over the step: times their number, each is the gradient of one item.
    each = each.to(at::kDouble) * total_;
    Moments& m = moments_[n];
    m.sum = m.sum.defined() ? m.sum + each.sum(0) : each.sum(0);
    m.squares = m.squares.defined() ? m.squares + each.square().sum(0) : each.square().sum(0);
  }
}

std::optional<PolicyReport> PolicyStep::finish() {
  if (rewards_.empty()) return std::nullopt;
  const at::Tensor all = at::cat(rewards_);
  for (const auto& baseline : baselines_) baseline->observe(all);
  for (const Moments& m : moments_) {
    if (!m.sum.defined() || total_ < 2) continue;
    report_.gradient_variance += ((m.squares - m.sum.square() / total_) / (total_ - 1)).sum().item<double>();
  }
  return report_;
}

}  // namespace edgewise::train
