// The gradient of one training step: micro-batches accumulated so that the sum equals the whole batch's
// gradient.
#pragma once

#include <edgewise/models/model.h>
#include <edgewise/ops/random_stream.h>
#include <edgewise/tasks/objective.h>
#include <edgewise/train/precision.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace edgewise::train {

class PassGraphs;
class Ranks;

// Of a process that does a part of a step: what it must know of the whole.
struct StepShare {
  std::vector<int64_t> first_items;  // of its micro-batches, each in the whole batch
  int64_t items = 0;                 // of the whole batch
  double targets = 0;                // Objective::count_targets of it
  std::vector<double> pairs;         // per tower, what its density is divided by
  Ranks* ranks = nullptr;
  // Called before the last pass, whose backward makes the gradients whole one after the other; not where
  // passes are replayed from graphs.
  std::function<void()> before_last_pass = {};
};

struct StepOptions {
  const tasks::Objective* objective = &tasks::cross_entropy();
  int64_t micro_batch = 0;    // items per forward pass; 0 = the whole batch
  double density_weight = 0;  // lambda: loss = cross-entropy + lambda * density
  // Whether the density's denominator counts padding (preset `published`): decides the weights of
  // micro-batches.
  bool count_padding = false;
  at::Device device = at::kCPU;
  Precision precision = Precision::kFp32;
  int64_t edge_samples =
      1;  // draws of the edges per item, for sources that learn by reward; gradients are averaged
  PassGraphs* graphs = nullptr;  // replays passes that it has recorded (edgewise/train/pass_graphs.h)
  // Of one of several processes: the batch is its part of a larger one, and so are gradient and report, which
  // add up to those of the whole. A part may be empty.
  const StepShare* share = nullptr;
};

// How a source that learns by reward fares, over the items and draws of a step.
struct PolicyReport {
  double reward = 0;    // mean log-likelihood of the right answer
  double baseline = 0;  // what was expected of it, mean over layers too
  double entropy = 0;   // of a prediction in nats, mean over layers too
  double log_prob = 0;  // of all actions of an item, summed over layers
  // Variance over items of one item's gradient, summed over the entries of the predictors' node projections.
  double gradient_variance = 0;
};

struct StepReport {
  double loss = 0;       // task_loss + density_weight * penalty
  double task_loss = 0;  // mean cross-entropy over the targets
  double penalty = 0;
  double extra_loss = 0;  // ModelOutput::extra_loss, in `loss` too
  double accuracy = 0;
  at::Tensor density;  // [layers, H] double on the CPU
  int64_t edges = 0;
  std::optional<PolicyReport> policy;  // when a source learns by reward
};

// A step whose numbers may still be on their way from the device.
class PendingReport {
 public:
  explicit PendingReport(std::function<StepReport()> read) : read_(std::move(read)) {}
  // Waits for them. Throws when the loss is not finite, naming the step and the first parameter, state or
  // gradient that is not. Once.
  StepReport read() const { return read_(); }

 private:
  std::function<StepReport()> read_;
};

// Adds the gradient of the loss over `batch` to the model's parameters. Item i of the batch draws its edges
// as item random.first_item + i, whatever the micro-batch; torch's generator, which ordinary dropout uses, is
// seeded anew for every micro-batch. On a GPU nothing waits for it, unless a source of edges does; `model`
// stays until the report is read.
//
// `memories`, for language models: per layer [B, M, dim] what stands before the batch (empty at the beginning
// of a text); afterwards what stands before the next one. Empty for models without a memory.
PendingReport begin_gradients(Model& model, const Batch& batch, const StepOptions& options,
                              const RandomStream& random, std::vector<at::Tensor>* memories = nullptr);
// The same, and reads the report.
StepReport accumulate_gradients(Model& model, const Batch& batch, const StepOptions& options,
                                const RandomStream& random, std::vector<at::Tensor>* memories = nullptr);

// Targets and pairs of a part of a batch, from which those of the whole are summed.
StepShare count_share(const Batch& part, const StepOptions& options);
// The sum of the reports that all processes have of their parts. All call it.
StepReport sum_reports(const StepReport& report, double density_weight, Ranks& ranks);

// Throws the same error when the model's gradients are not finite.
void check_gradient_norm(Model& model, double norm, const Batch& batch, const StepOptions& options,
                         const RandomStream& random);

}  // namespace edgewise::train
