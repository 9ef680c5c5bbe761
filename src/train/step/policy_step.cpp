#include "train/step/policy_step.h"

#include <edgewise/train/ranks.h>

#include <algorithm>

#include <torch/types.h>
#include <torch/utils.h>

namespace edgewise::train {

bool asks_for_second_draw(const ModelOutput& output) {
  return std::ranges::any_of(output.policies,
                             [](const EdgePolicy& policy) { return policy.weights.paired != 0; });
}

namespace {

// Objective::target_losses by token, [B, N], where there are losses of tokens.
at::Tensor losses_of_tokens(const tasks::Objective& objective, const at::Tensor& logits, const Batch& part) {
  const at::Tensor losses = objective.target_losses(logits, part);
  const at::Tensor* const places = part.places();
  if (!places) return losses;
  return at::zeros({part.size(), part.towers[0].length()}, losses.options()).scatter_add(1, *places, losses);
}

}  // namespace

at::Tensor PolicyStep::loss(std::span<const ModelOutput> draws, const tasks::Objective& objective,
                            const Batch& part, double targets) {
  const double share = 1 / static_cast<double>(draws.size());
  const auto sum = [&](const at::Tensor& x) { return x.detach().sum().to(at::kDouble) * share; };
  PassSums& sums = passes_.emplace_back();
  sums.reward = at::zeros({}, draws[0].logits.options().dtype(at::kDouble));
  at::Tensor loss = at::zeros({}, draws[0].logits.options().dtype(at::kFloat));
  for (const ModelOutput& output : draws) {
    const at::Tensor rewards = objective.item_rewards(output.logits, part);
    rewards_.push_back(rewards);
    sums.reward = sums.reward + sum(rewards);
    for (const EdgePolicy& policy : output.policies) {
      loss = loss + policy_loss(policy, rewards).sum().to(at::kFloat) * (share / total_);
      sums.policies.push_back({sum(policy.baseline), sum(policy.entropy), sum(policy.log_prob)});
      if (policy.rewards && std::ranges::find(baselines_, policy.rewards) == baselines_.end())
        baselines_.push_back(policy.rewards);
    }
  }
  sums.layers = draws[0].policies.size();
  if (draws.size() < 2) return loss;
  const at::Tensor first = losses_of_tokens(objective, draws[0].logits, part),
                   second = losses_of_tokens(objective, draws[1].logits, part);
  for (size_t n = 0; n < draws[0].policies.size(); ++n)
    loss =
        loss +
        paired_loss(draws[0].policies[n], draws[1].policies[n], first, second).sum().to(at::kFloat) / targets;
  return loss;
}

void PolicyStep::after_backward(std::span<const ModelOutput> draws) {
  moments_.resize(std::max(moments_.size(), draws[0].policies.size()));
  for (size_t n = 0; n < draws[0].policies.size(); ++n) {
    at::Tensor each;  // [B, entries]
    for (const ModelOutput& output : draws) {
      const at::Tensor part = item_gradients(output.policies[n]);
      if (part.defined()) each = each.defined() ? each + part : part;
    }
    if (!each.defined()) continue;
    // The loss is a mean over the step: times their number, each is the gradient of one item.
    each = each.to(at::kDouble) * total_;
    Moments& m = moments_[n];
    m.sum = m.sum.defined() ? m.sum + each.sum(0) : each.sum(0);
    m.squares = m.squares.defined() ? m.squares + each.square().sum(0) : each.square().sum(0);
  }
}

void PolicyStep::sum_moments() {
  for (Moments& m : moments_)
    if (m.sum.defined())
      for (at::Tensor* const part : {&m.sum, &m.squares}) {
        at::Tensor host = part->cpu();
        ranks_->sum(host, "the variance of a policy's gradients");
        *part = host;
      }
}

std::optional<PolicyReport> PolicyStep::finish() {
  if (rewards_.empty()) return std::nullopt;
  at::Tensor all = at::cat(rewards_);
  if (ranks_) {
    all = ranks_->gather_rows(all, "the rewards of a step");
    sum_moments();
  }
  for (const auto& baseline : baselines_) baseline->observe(all);
  std::vector<at::Tensor> scalars;
  for (const PassSums& sums : passes_) {
    scalars.push_back(sums.reward);
    for (const auto& policy : sums.policies) scalars.insert(scalars.end(), policy.begin(), policy.end());
  }
  for (const Moments& m : moments_)
    if (m.sum.defined() && total_ >= 2)
      scalars.push_back(((m.squares - m.sum.square() / total_) / (total_ - 1)).sum());
  for (at::Tensor& scalar : scalars) scalar = scalar.to(rewards_[0].device());
  const at::Tensor read = at::stack(scalars).cpu();  // the only time that the host waits
  const double *next = read.const_data_ptr<double>(), *const end = next + read.numel();
  PolicyReport report;
  for (const PassSums& sums : passes_) {
    const double layers = static_cast<double>(sums.layers);
    report.reward += *next++ / total_;
    for (size_t n = 0; n < sums.policies.size(); ++n) {
      report.baseline += *next++ / (total_ * layers);
      report.entropy += *next++ / (total_ * layers);
      report.log_prob += *next++ / total_;
    }
  }
  while (next < end) report.gradient_variance += *next++;
  return report;
}

}  // namespace edgewise::train
