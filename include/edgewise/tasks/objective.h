// Objective: what the logits of a batch are scored on, in training and in evaluation.
#pragma once

#include <edgewise/models/batch.h>

#include <memory>

namespace edgewise::tasks {

// Sums over targets, so that those of micro-batches add up to the whole batch's.
struct Score {
  at::Tensor loss;     // scalar, differentiable
  at::Tensor correct;  // scalar int64: targets that are answered right
};

class Objective {
 public:
  virtual ~Objective() = default;
  virtual int64_t count_targets(const Batch& batch) const = 0;
  virtual Score score(const at::Tensor& logits, const Batch& batch) const = 0;
  // What is lost on each target, in the units of Score::loss: [B] double, detached, or [B, N] where tokens
  // are targets, with 0 for those that are none.
  virtual at::Tensor target_losses(const at::Tensor& logits, const Batch& batch) const = 0;
  // How good the answer for each item is, for sources of edges that learn by reward: [B] double, detached.
  virtual at::Tensor item_rewards(const at::Tensor& logits, const Batch& batch) const = 0;
};

// Cross-entropy. Targets are the items where labels are [B], logits [B, classes]; where labels are [B, N],
// logits [B, N, classes], the valid tokens whose label is not -1, or all tokens of batches without a mask. An
// item's reward is the log-likelihood of its right answers, the mean over its targets. Of batches with two
// towers, whose labels are of the second, all whose label is not -1.
const Objective& cross_entropy();

// The same against labels that give the share `smoothing` to all classes alike:
//   (1 - smoothing) nll + smoothing / classes * sum over classes of -log p.
std::shared_ptr<const Objective> smoothed_cross_entropy(double smoothing);

}  // namespace edgewise::tasks
