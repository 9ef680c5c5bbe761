#include "train/loss.h"

#include <algorithm>

#include <torch/nn/functional.h>

namespace edgewise::train {

namespace {

// A text: every token has a label, and nothing has to be looked up on the device.
bool all_are_targets(const data::Batch& batch) {
  return batch.labels.dim() == 2 && batch.masks.empty();
}

// Valid tokens that have a label: [B, N].
at::Tensor token_targets(const data::Batch& batch) {
  return batch.masks.at(0) & (batch.labels >= 0);
}

}  // namespace

int64_t count_targets(const data::Batch& batch) {
  if (all_are_targets(batch)) return batch.labels.numel();
  return batch.labels.dim() == 2 ? token_targets(batch).sum().item<int64_t>() : batch.size();
}

std::vector<double> density_pairs(const data::Batch& batch, bool count_padding) {
  std::vector<double> result;
  for (size_t tower = 0; tower < batch.tokens.size(); ++tower) {
    const bool masked = !count_padding && tower < batch.masks.size() && batch.masks[tower].defined();
    const double length = static_cast<double>(batch.tokens[tower].size(1));
    result.push_back(masked ? batch.masks[tower].sum(1).to(at::kDouble).square().sum().item<double>()
                            : static_cast<double>(batch.size()) * length * length);
  }
  return result;
}

TaskLoss task_loss(const at::Tensor& logits, const data::Batch& batch) {
  at::Tensor scores = logits, labels = batch.labels;
  if (all_are_targets(batch)) {
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
  return {F::cross_entropy(scores, labels, F::CrossEntropyFuncOptions().reduction(torch::kSum)),
          scores.detach().argmax(-1).eq(labels).sum()};
}

at::Tensor item_rewards(const at::Tensor& logits, const data::Batch& batch) {
  const at::Tensor log_p = logits.detach().to(at::kDouble).log_softmax(-1);
  const at::Tensor right = log_p.gather(-1, batch.labels.clamp_min(0).unsqueeze(-1)).squeeze(-1);
  if (batch.labels.dim() == 1) return right;
  if (all_are_targets(batch)) return right.mean(1);
  const at::Tensor targets = token_targets(batch);
  return right.masked_fill(targets.logical_not(), 0).sum(1) / targets.sum(1).clamp_min(1);
}

data::Batch to_device(const data::Batch& batch, at::Device device) {
  data::Batch result;
  for (const at::Tensor& tokens : batch.tokens)
    result.tokens.push_back(tokens.to(device, /*non_blocking=*/true));
  for (const at::Tensor& mask : batch.masks) result.masks.push_back(mask.to(device, /*non_blocking=*/true));
  for (const at::Tensor& places : batch.positions)
    result.positions.push_back(places.to(device, /*non_blocking=*/true));
  result.sequence_length = batch.sequence_length;
  result.labels = batch.labels.to(device, /*non_blocking=*/true);
  result.trim_multiple = batch.trim_multiple;
  return result;
}

namespace {

// Columns up to the last valid token of any row, rounded up. A mask may have holes, so the last one counts.
int64_t trimmed_length(const at::Tensor& mask, int64_t multiple) {
  const at::Tensor used = mask.any(0).nonzero();  // [columns, 1], ascending
  const int64_t longest = used.numel() == 0 ? 1 : used[-1].item<int64_t>() + 1;
  return std::min((longest + multiple - 1) / multiple * multiple, mask.size(1));
}

}  // namespace

data::Batch slice_items(const data::Batch& batch, int64_t first, int64_t count) {
  data::Batch result;
  for (const at::Tensor& tokens : batch.tokens) result.tokens.push_back(tokens.narrow(0, first, count));
  for (const at::Tensor& mask : batch.masks) result.masks.push_back(mask.narrow(0, first, count));
  for (const at::Tensor& places : batch.positions) result.positions.push_back(places.narrow(0, first, count));
  result.sequence_length = batch.sequence_length;
  result.labels = batch.labels.narrow(0, first, count);
  result.trim_multiple = batch.trim_multiple;
  if (batch.trim_multiple == 0 || count == batch.size() || batch.labels.dim() == 2) return result;
  for (size_t tower = 0; tower < result.masks.size(); ++tower) {
    const int64_t length = trimmed_length(result.masks[tower], batch.trim_multiple);
    result.tokens[tower] = result.tokens[tower].narrow(1, 0, length).contiguous();
    result.masks[tower] = result.masks[tower].narrow(1, 0, length).contiguous();
    if (!result.positions.empty())
      result.positions[tower] = result.positions[tower].narrow(1, 0, length).contiguous();
  }
  return result;
}

}  // namespace edgewise::train
