#include <edgewise/train/step.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/record_function.h>
#include <edgewise/graph/mask_counts.h>
#include <torch/types.h>

#include "train/dropout_seed.h"
#include "train/host_copy.h"
#include "train/loss.h"
#include "train/non_finite.h"
#include "train/policy_step.h"

namespace edgewise::train {
namespace {

// `host` is the same batch on the CPU. A mask without padding is left out: whoever needs none is spared it,
// and torch's fastest attention takes none.
ModelInput make_input(const data::Batch& batch, const data::Batch& host, const RandomStream& random,
                      int64_t first) {
  ModelInput input;
  input.tokens = batch.tokens;
  input.positions = batch.positions;
  input.sequence_length = batch.sequence_length;
  for (size_t tower = 0; tower < batch.masks.size(); ++tower) {
    const bool padded = host.masks[tower].defined() && !host.masks[tower].all().item<bool>();
    input.masks.push_back(padded ? batch.masks[tower] : at::Tensor());
    if (padded) remember_mask_counts(batch.masks[tower], host.masks[tower]);
  }
  input.random = random;
  input.random.first_item += first;
  return input;
}

std::vector<data::Batch> micro_batches(const data::Batch& batch, int64_t micro_batch) {
  const int64_t micro = micro_batch > 0 ? micro_batch : batch.size();
  std::vector<data::Batch> result;
  for (int64_t first = 0; first < batch.size(); first += micro) {
    result.push_back(slice_items(batch, first, std::min(micro, batch.size() - first)));
  }
  return result;
}

// Draws of the edges of one item are separate uses of the same layers.
constexpr uint32_t kLayersPerDraw = 1u << 16;

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

[[noreturn]] void throw_non_finite(const std::string& what, const ModelInput& input,
                                   const std::string& place) {
  TORCH_CHECK(false, "train: expected a finite ", what, " at step ", input.random.step,
              "; the first that is not finite is ", place.empty() ? "the " + what + " itself" : place,
              ". Start again with a lower train.learning_rate or with train.grad_clip, or check the data of "
              "this step.");
}

// Samplers refuse probabilities that are not finite; behind such an error the origin is what the user needs.
ModelOutput forward(Model& model, const ModelInput& input, const StepOptions& options) {
  const PrecisionGuard guard(options.precision, options.device);
  seed_dropout(input.random);
  try {
    return model.forward(input);
  } catch (const c10::Error&) {
    const std::string place = find_non_finite(model, {&input, 1});
    if (place.empty()) throw;
    throw_non_finite("forward pass", input, place);
  }
}

// What the passes of a step report. The numbers stay where they were computed until the step is over: reading
// one in between would make the host wait for the device, and the device then for the host.
class PassNumbers {
 public:
  // Scalars of one pass, the first of them on the device of the model.
  void add(const std::vector<at::Tensor>& scalars) {
    std::vector<at::Tensor> wide;
    for (const at::Tensor& scalar : scalars)
      wide.push_back(scalar.detach().to(scalars[0].device(), at::kDouble, /*non_blocking=*/true));
    passes_.push_back(at::stack(wide));
  }
  at::Tensor all() const { return at::stack(passes_); }  // [passes, scalars]

 private:
  std::vector<at::Tensor> passes_;
};

}  // namespace

PendingReport begin_gradients(Model& model, const data::Batch& batch, const StepOptions& options,
                              const RandomStream& random, std::vector<at::Tensor>* memories) {
  TORCH_CHECK_VALUE(batch.size() > 0, "accumulate_gradients: expected at least one item; got an empty batch");
  const double targets = static_cast<double>(std::max<int64_t>(count_targets(batch), 1));
  const std::vector<data::Batch> parts = micro_batches(batch, options.micro_batch);
  std::vector<double> pairs(batch.tokens.size());
  for (const data::Batch& host : parts) {
    const std::vector<double> part_pairs = density_pairs(host, options.count_padding);
    for (size_t tower = 0; tower < pairs.size(); ++tower) pairs[tower] += part_pairs[tower];
  }

  TORCH_CHECK_VALUE(options.edge_samples >= 1,
                    "accumulate_gradients: expected at least one draw of the edges; got ",
                    options.edge_samples);
  const auto draws = static_cast<double>(options.edge_samples);

  StepReport report;
  PolicyStep policy(batch.size() * options.edge_samples);
  PassNumbers numbers;
  std::vector<ModelInput> inputs;
  int64_t first = 0;
  std::vector<std::vector<at::Tensor>> next_memories;  // per micro-batch, per layer
  for (const data::Batch& host : parts) {
    const data::Batch part = to_device(host, options.device);
    const std::vector<double> part_pairs = density_pairs(host, options.count_padding);
    const double towers = static_cast<double>(part_pairs.size());
    for (int64_t draw = 0; draw < options.edge_samples; ++draw) {
      ModelInput input = make_input(part, host, random, first);
      input.random.layer += static_cast<uint32_t>(draw) * kLayersPerDraw;
      if (memories)
        for (const at::Tensor& memory : *memories)
          input.memories.push_back(memory.narrow(0, first, host.size()));
      const ModelOutput output = [&] {
        RECORD_USER_SCOPE("forward");
        return forward(model, input, options);
      }();
      inputs.push_back(input);
      const TaskLoss task = task_loss(output.logits, part);

      at::Tensor loss = task.sum / (targets * draws);
      const at::Tensor task_part = loss, none = at::zeros({}, loss.options().requires_grad(false));
      at::Tensor penalty = none, extra = none;
      for (size_t tower = 0; tower < output.tower_penalties.size(); ++tower)
        penalty = penalty +
                  output.tower_penalties[tower] * (ratio(part_pairs[tower], pairs[tower]) / (towers * draws));
      if (options.density_weight != 0 && !output.tower_penalties.empty())
        loss = loss + options.density_weight * penalty;
      if (output.extra_loss.defined()) {
        extra = output.extra_loss *
                (static_cast<double>(host.size()) / (static_cast<double>(batch.size()) * draws));
        loss = loss + extra;
      }
      if (!output.policies.empty()) loss = loss + policy.loss(output, part);
      {
        RECORD_USER_SCOPE("backward");
        loss.backward();
      }
      policy.after_backward(output);

      double share = 0;
      for (size_t tower = 0; tower < pairs.size(); ++tower)
        share += ratio(part_pairs[tower], pairs[tower]) / (towers * draws);
      const at::Tensor density = output.densities.detach() * share;
      report.density = report.density.defined() ? report.density + density : density;
      numbers.add({task_part, penalty, extra, task.correct, output.edge_count});
      if (draw == 0 && !output.memories.empty()) next_memories.push_back(output.memories);
    }
    first += host.size();
  }
  if (memories) {
    memories->clear();
    for (size_t layer = 0; !next_memories.empty() && layer < next_memories[0].size(); ++layer) {
      std::vector<at::Tensor> rows;
      for (const std::vector<at::Tensor>& part : next_memories) rows.push_back(part[layer]);
      memories->push_back(at::cat(rows));
    }
  }
  report.policy = policy.finish();
  // One copy for all: the density's entries behind the passes' scalars.
  const at::Tensor scalars = numbers.all();
  const auto density = report.density.to(scalars.device(), at::kDouble, /*non_blocking=*/true);
  auto arriving = std::make_shared<HostCopy>(at::cat({scalars.reshape(-1), density.reshape(-1)}));
  const int64_t width = scalars.size(1);
  return PendingReport([=, &model, targets = targets * draws, sizes = density.sizes().vec()] {
    const at::Tensor& read = arriving->get();
    StepReport result = report;
    const int64_t passes = std::ssize(inputs);
    result.density = read.slice(0, passes * width).reshape(sizes).clone();
    double correct = 0;
    for (int64_t pass = 0; pass < passes; ++pass) {
      const double* const row = read.const_data_ptr<double>() + pass * width;
      const double value = row[0] + options.density_weight * row[1] + row[2];
      const ModelInput& input = inputs[static_cast<size_t>(pass)];
      if (!std::isfinite(value)) throw_non_finite("loss", input, find_non_finite(model, {&input, 1}));
      result.task_loss += row[0];
      result.penalty += row[1];
      result.extra_loss += row[2];
      correct += row[3];
      result.edges += static_cast<int64_t>(row[4]);
    }
    result.loss = result.task_loss + options.density_weight * result.penalty + result.extra_loss;
    result.accuracy = correct / targets;
    return result;
  });
}

StepReport accumulate_gradients(Model& model, const data::Batch& batch, const StepOptions& options,
                                const RandomStream& random, std::vector<at::Tensor>* memories) {
  return begin_gradients(model, batch, options, random, memories).read();
}

void check_gradient_norm(Model& model, double norm, const data::Batch& batch, const StepOptions& options,
                         const RandomStream& random) {
  if (std::isfinite(norm)) return;
  // All of the step's passes: any of them may have brought the gradient about.
  std::vector<ModelInput> passes;
  int64_t first = 0;
  for (const data::Batch& host : micro_batches(batch, options.micro_batch)) {
    passes.push_back(make_input(to_device(host, options.device), host, random, first));
    first += host.size();
  }
  throw_non_finite("gradient", passes.front(), find_non_finite(model, passes));
}

}  // namespace edgewise::train
