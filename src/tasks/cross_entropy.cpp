// Cross-entropy over the labels of items or of tokens.
#include <edgewise/tasks/objective.h>

#include <torch/nn/functional.h>

namespace edgewise::tasks {
namespace {

constexpr int64_t kNoTarget = -1;

// Whether labels of tokens are of masked tokens too. Those of a translation say themselves where it ends.
bool has_masked_labels(const Batch& batch) {
  return batch.towers.size() == 1 && batch.towers[0].mask.defined();
}

// Tokens without a mask: no row has to be picked out, which would wait for the device.
bool takes_every_row(const Batch& batch) {
  return batch.labels.dim() == 2 && (batch.places() || !has_masked_labels(batch));
}

// Valid tokens that have a label: [B, N], or [B, M] of the batch's places.
at::Tensor token_targets(const Batch& batch) {
  const at::Tensor labelled = batch.labels != kNoTarget;
  return takes_every_row(batch) ? labelled : batch.towers[0].mask & labelled;
}

class CrossEntropy : public Objective {
 public:
  explicit CrossEntropy(double smoothing = 0) : smoothing_(smoothing) {}

  int64_t count_targets(const Batch& batch) const override {
    return batch.labels.dim() == 2 ? token_targets(batch).sum().item<int64_t>() : batch.size();
  }

  Score score(const at::Tensor& logits, const Batch& batch) const override {
    at::Tensor scores = logits, labels = batch.labels;
    if (takes_every_row(batch)) {
      scores = logits.flatten(0, 1);
      labels = labels.flatten();
    } else if (labels.dim() == 2) {
      const at::Tensor targets = token_targets(batch);
      scores = logits.index({targets});  // [targets, classes]
      labels = labels.index({targets});
    }
    // A model in bf16 gives logits of eight bits: their logarithms and the sum over thousands of targets need
    // more.
    if (at::isReducedFloatingType(scores.scalar_type())) scores = scores.to(at::kFloat);
    namespace F = torch::nn::functional;
    const auto summed = F::CrossEntropyFuncOptions()
                            .reduction(torch::kSum)
                            .ignore_index(kNoTarget)
                            .label_smoothing(smoothing_);
    return {F::cross_entropy(scores, labels, summed), scores.detach().argmax(-1).eq(labels).sum()};
  }

  at::Tensor target_losses(const at::Tensor& logits, const Batch& batch) const override {
    const auto each = [](const at::Tensor& scores, const at::Tensor& labels) {
      const at::Tensor log_p = scores.to(at::kDouble).log_softmax(-1);
      return -log_p.gather(-1, labels.unsqueeze(-1)).squeeze(-1);
    };
    const at::Tensor scores = logits.detach();
    if (batch.labels.dim() == 1) return each(scores, batch.labels);
    const at::Tensor targets = token_targets(batch);
    return at::zeros(batch.labels.sizes(), scores.options().dtype(at::kDouble))
        .index_put({targets}, each(scores.index({targets}), batch.labels.index({targets})));
  }

  at::Tensor item_rewards(const at::Tensor& logits, const Batch& batch) const override {
    const at::Tensor lost = target_losses(logits, batch);
    return lost.dim() == 1 ? -lost : -lost.sum(1) / token_targets(batch).sum(1).clamp_min(1);
  }

 private:
  double smoothing_;
};

}  // namespace

const Objective& cross_entropy() {
  static const CrossEntropy objective;
  return objective;
}

std::shared_ptr<const Objective> smoothed_cross_entropy(double smoothing) {
  TORCH_CHECK_VALUE(smoothing >= 0 && smoothing < 1,
                    "cross_entropy: expected a label smoothing in [0, 1); got ", smoothing);
  return std::make_shared<CrossEntropy>(smoothing);
}

}  // namespace edgewise::tasks
