// What a batch is scored on: cross-entropy and accuracy over its targets (items, or valid tokens with a
// label).
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/data/dataset.h>

#include <vector>

namespace edgewise::train {

struct TaskLoss {
  at::Tensor sum;      // scalar, differentiable: cross-entropy summed over the targets
  at::Tensor correct;  // scalar int64: targets whose largest logit is the label
};

// Targets of a batch: items, or for token labels the valid tokens with a label. Sums over micro-batches
// divided by this number equal the mean over the whole batch.
int64_t count_targets(const data::Batch& batch);

// Per tower, the number that the density of a batch is divided by: pairs of valid tokens, or of all. The
// density of several batches together is the mean of theirs with these weights.
std::vector<double> density_pairs(const data::Batch& batch, bool count_padding);

// logits [B, classes], or [B, N, classes] when batch.labels is [B, N].
TaskLoss task_loss(const at::Tensor& logits, const data::Batch& batch);

// The log-likelihood of the right answer per item, the mean over its targets: [B] double, detached.
at::Tensor item_rewards(const at::Tensor& logits, const data::Batch& batch);

data::Batch to_device(const data::Batch& batch, at::Device device);
// Items first .. first + count of the batch, without the padding that only the other items needed (where the
// batch allows it: Batch::trim_multiple).
data::Batch slice_items(const data::Batch& batch, int64_t first, int64_t count);

}  // namespace edgewise::train
