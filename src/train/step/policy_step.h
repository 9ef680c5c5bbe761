// The part of a training step that teaches sources which learn by reward (edgewise/edges/edge_policy.h).
#pragma once

#include <edgewise/models/model.h>
#include <edgewise/train/step.h>

#include <array>
#include <optional>
#include <span>
#include <vector>

namespace edgewise::train {

// Whether a policy compares two draws of its edges.
bool asks_for_second_draw(const ModelOutput& output);

class PolicyStep {
 public:
  // total: items of the whole step, each counted once per draw of its edges. ranks: where each of several
  // processes has a part of them.
  explicit PolicyStep(int64_t total, Ranks* ranks = nullptr)
      : total_(static_cast<double>(total)), ranks_(ranks) {}

  // What to add to the loss for one pass, whose items went through the model once for each of `draws`: the
  // mean over the step of the items' policy losses, and of two draws what compares them.
  // targets: what the task's sum of losses is divided by.
  at::Tensor loss(std::span<const ModelOutput> draws, const tasks::Objective& objective, const Batch& part,
                  double targets);
  void after_backward(std::span<const ModelOutput> draws);
  // Tells the baselines this step's rewards, of all ranks: only now, so that no baseline contains the reward
  // it is compared with. Of the report all but the variance is this rank's share.
  std::optional<PolicyReport> finish();

 private:
  struct Moments {
    at::Tensor sum, squares;  // over items: [entries]
  };
  // What a pass adds to the report, on the device: it is read once, when the step is over.
  struct PassSums {
    at::Tensor reward;  // scalar, double; a mean over draws, as the others
    std::vector<std::array<at::Tensor, 3>>
        policies;  // of each draw and layer baseline, entropy and log-probability: scalars, double
    size_t layers = 0;
  };

  // Of all ranks.
  void sum_moments();

  double total_;
  Ranks* ranks_;
  std::vector<PassSums> passes_;
  std::vector<at::Tensor> rewards_;
  std::vector<std::shared_ptr<RewardStatistics>> baselines_;
  std::vector<Moments> moments_;  // one per policy of a pass
};

}  // namespace edgewise::train
