// The part of a training step that teaches sources which learn by reward (edgewise/edges/edge_policy.h).
#pragma once

#include <edgewise/models/model.h>
#include <edgewise/train/step.h>

#include <array>
#include <optional>
#include <vector>

namespace edgewise::train {

class PolicyStep {
 public:
  // total: items of the whole step, each counted once per draw of its edges.
  explicit PolicyStep(int64_t total) : total_(static_cast<double>(total)) {}

  // What to add to the loss for one pass: the mean over the step of the items' policy losses.
  // rewards: Objective::item_rewards of its items.
  at::Tensor loss(const ModelOutput& output, const at::Tensor& rewards);
  void after_backward(const ModelOutput& output);
  // Tells the baselines this step's rewards: only now, so that no baseline contains the reward it is compared
  // with.
  std::optional<PolicyReport> finish();

 private:
  struct Moments {
    at::Tensor sum, squares;  // over items: [entries]
  };
  // What a pass adds to the report, on the device: it is read once, when the step is over.
  struct PassSums {
    at::Tensor reward;  // scalar, double
    std::vector<std::array<at::Tensor, 3>>
        policies;  // baseline, entropy and log-probability: scalars, double
  };

  double total_;
  std::vector<PassSums> passes_;
  std::vector<at::Tensor> rewards_;
  std::vector<std::shared_ptr<RewardStatistics>> baselines_;
  std::vector<Moments> moments_;  // one per policy of a pass
};

}  // namespace edgewise::train
