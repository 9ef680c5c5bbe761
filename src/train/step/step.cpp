#include <edgewise/train/ranks.h>
#include <edgewise/train/step.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "train/density_pairs.h"
#include "train/step/dropout_seed.h"
#include "train/step/host_copy.h"
#include "train/step/non_finite.h"
#include "train/step/pass.h"
#include "train/step/pass_graph_state.h"
#include "train/step/policy_step.h"

namespace edgewise::train {
namespace {

std::vector<Batch> micro_batches(const Batch& batch, int64_t micro_batch) {
  const int64_t micro = micro_batch > 0 ? micro_batch : batch.size();
  std::vector<Batch> result;
  for (int64_t first = 0; first < batch.size(); first += micro) {
    result.push_back(slice_items(batch, first, std::min(micro, batch.size() - first)));
  }
  return result;
}

// In the whole batch, where `batch` is a part of it.
int64_t first_item(size_t part, const std::vector<Batch>& parts, const StepOptions& options) {
  if (options.share) return options.share->first_items.at(part);
  int64_t first = 0;
  for (size_t before = 0; before < part; ++before) first += parts[before].size();
  return first;
}

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

ModelInput device_input(const Pass& pass, at::Device device) {
  return make_input(pass, to_device(pass.host, device));
}

// As the passes were computed, so are they repeated.
std::string find_origin(Model& model, std::span<const ModelInput> passes, const StepOptions& options) {
  const PrecisionGuard precision(options.precision, options.device);
  return find_non_finite(model, passes);
}

// Samplers refuse probabilities that are not finite; behind such an error the origin is what the user needs.
PassOutput run_ordinary(Model& model, const Pass& pass, const StepOptions& options, PolicyStep& policy) {
  const Batch part = to_device(pass.host, options.device);
  const ModelInput input = make_input(pass, part);
  seed_dropout(pass.random);
  try {
    return run_pass(model, input, part, std::make_shared<const PassWeights>(pass.weights), options, &policy);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error&) {
    const std::string place = find_origin(model, {&input, 1}, options);
    if (place.empty()) throw;
    throw_non_finite("pass", input, place);
  }
}

// Per tower, what the density of the batch is divided by.
std::vector<double> batch_pairs(const Batch& batch, const StepOptions& options) {
  std::vector<double> pairs(batch.towers.size());
  for (const Batch& host : micro_batches(batch, options.micro_batch)) {
    const std::vector<double> part_pairs = density_pairs(host, options.count_padding);
    for (size_t tower = 0; tower < pairs.size(); ++tower) pairs[tower] += part_pairs[tower];
  }
  return pairs;
}

// A pass whose numbers may still be on their way. They stay where they were computed until the step is over:
// reading one in between would make the host wait for the device, and the device then for the host.
struct RunningPass {
  Pass pass;
  std::shared_ptr<HostCopy> numbers;
  int64_t heads = 0;
};

}  // namespace

PendingReport begin_gradients(Model& model, const Batch& batch, const StepOptions& options,
                              const RandomStream& random, std::vector<at::Tensor>* memories) {
  const StepShare* const share = options.share;
  TORCH_CHECK_VALUE(share || batch.size() > 0,
                    "accumulate_gradients: expected at least one item; got an empty batch");
  const double targets =
      std::max(share ? share->targets : static_cast<double>(options.objective->count_targets(batch)), 1.0);
  const auto items = static_cast<double>(share ? share->items : batch.size());
  const std::vector<Batch> parts = micro_batches(batch, options.micro_batch);
  const std::vector<double> pairs = share ? share->pairs : batch_pairs(batch, options);

  TORCH_CHECK_VALUE(options.edge_samples >= 1,
                    "accumulate_gradients: expected at least one draw of the edges; got ",
                    options.edge_samples);
  const auto draws = static_cast<double>(options.edge_samples);

  PolicyStep policy(static_cast<int64_t>(items) * options.edge_samples, share ? share->ranks : nullptr);
  std::vector<RunningPass> running;
  int64_t first = 0;
  std::vector<std::vector<at::Tensor>> next_memories;  // per micro-batch, per layer
  for (size_t part = 0; part < parts.size(); ++part) {
    const Batch& host = parts[part];
    Pass pass;
    pass.host = host;
    if (memories)
      for (const at::Tensor& memory : *memories)
        pass.memories.push_back(memory.narrow(0, first, host.size()));
    const std::vector<double> part_pairs = density_pairs(host, options.count_padding);
    const double towers = static_cast<double>(part_pairs.size());
    pass.weights.targets = targets * draws;
    pass.weights.density = 0;
    for (size_t tower = 0; tower < pairs.size(); ++tower) {
      pass.weights.penalties.push_back(ratio(part_pairs[tower], pairs[tower]) / (towers * draws));
      pass.weights.density += pass.weights.penalties.back();
    }
    pass.weights.density_weight = options.density_weight;
    pass.weights.extra = static_cast<double>(host.size()) / (items * draws);
    for (int64_t draw = 0; draw < options.edge_samples; ++draw) {
      pass.random = random;
      pass.random.first_item += first_item(part, parts, options);
      pass.random.layer += static_cast<uint32_t>(draw) * kLayersPerDraw;
      const bool last = part + 1 == parts.size() && draw + 1 == options.edge_samples;
      if (last && share && share->before_last_pass && !options.graphs) share->before_last_pass();
      std::optional<PassOutput> output;
      if (options.graphs) output = options.graphs->state().replay(model, pass, options);
      if (!output) output = run_ordinary(model, pass, options, policy);
      // Copied at once: the next replay may write where this pass has written.
      running.push_back({pass, std::make_shared<HostCopy>(output->numbers), output->heads});
      if (share && share->ranks) share->ranks->note();
      if (draw == 0 && !output->memories.empty()) next_memories.push_back(std::move(output->memories));
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
  return PendingReport([=, &model, targets = targets * draws, rewards = policy.finish()] {
    StepReport result;
    result.policy = rewards;
    double correct = 0;
    for (const RunningPass& each : running) {
      const at::Tensor& read = each.numbers->get();
      const double* const row = read.const_data_ptr<double>();
      const double value = row[0] + options.density_weight * row[1] + row[2];
      if (!std::isfinite(value)) {
        const ModelInput input = device_input(each.pass, options.device);
        throw_non_finite("loss", input, find_origin(model, {&input, 1}, options));
      }
      result.task_loss += row[0];
      result.penalty += row[1];
      result.extra_loss += row[2];
      correct += row[3];
      result.edges += static_cast<int64_t>(row[4]);
      const at::Tensor density = read.slice(0, PassOutput::kScalars).reshape({-1, each.heads});
      result.density = result.density.defined() ? result.density + density : density.clone();
    }
    result.loss = result.task_loss + options.density_weight * result.penalty + result.extra_loss;
    result.accuracy = correct / targets;
    return result;
  });
}

StepReport accumulate_gradients(Model& model, const Batch& batch, const StepOptions& options,
                                const RandomStream& random, std::vector<at::Tensor>* memories) {
  return begin_gradients(model, batch, options, random, memories).read();
}

StepShare count_share(const Batch& part, const StepOptions& options) {
  StepShare result;
  result.items = part.size();
  if (part.size() == 0) return result;
  result.targets = static_cast<double>(options.objective->count_targets(part));
  result.pairs = batch_pairs(part, options);
  return result;
}

StepReport sum_reports(const StepReport& report, double density_weight, Ranks& ranks) {
  StepReport sum = report;
  const PolicyReport policy = report.policy.value_or(PolicyReport());
  const at::Tensor scalars = at::tensor(
      {report.task_loss, report.penalty, report.extra_loss, report.accuracy,
       static_cast<double>(report.edges), policy.reward, policy.baseline, policy.entropy, policy.log_prob},
      at::kDouble);
  // A rank without a part knows neither layers nor heads.
  const at::Tensor mine = report.density.defined() ? at::cat({scalars, report.density.flatten()}).unsqueeze(0)
                                                   : at::empty({0}, at::kDouble);
  const at::Tensor flat = ranks.gather_rows(mine.flatten(), "the numbers of a step");
  const int64_t width = report.density.defined() ? mine.size(1) : 0;
  TORCH_CHECK(!report.density.defined() || flat.numel() % width == 0,
              "sum_reports: expected reports of one model; they differ in size");
  if (width == 0) return sum;
  const at::Tensor all = flat.reshape({-1, width}).sum(0);
  const double* next = all.const_data_ptr<double>();
  for (double* const to : {&sum.task_loss, &sum.penalty, &sum.extra_loss, &sum.accuracy}) *to = *next++;
  sum.edges = static_cast<int64_t>(*next++);
  if (sum.policy)  // its variance has been told for all together
    for (double* const to :
         {&sum.policy->reward, &sum.policy->baseline, &sum.policy->entropy, &sum.policy->log_prob})
      *to = *next++;
  sum.density = all.slice(0, scalars.numel()).reshape(report.density.sizes()).clone();
  sum.loss = sum.task_loss + density_weight * sum.penalty + sum.extra_loss;
  return sum;
}

void check_gradient_norm(Model& model, double norm, const Batch& batch, const StepOptions& options,
                         const RandomStream& random) {
  if (std::isfinite(norm)) return;
  // All of the step's passes: any of them may have brought the gradient about.
  std::vector<ModelInput> passes;
  const std::vector<Batch> parts = micro_batches(batch, options.micro_batch);
  for (size_t part = 0; part < parts.size(); ++part) {
    Pass pass;
    pass.host = parts[part];
    pass.random = random;
    pass.random.first_item += first_item(part, parts, options);
    passes.push_back(device_input(pass, options.device));
  }
  const ModelInput named{.batch = {}, .random = random};
  throw_non_finite("gradient", named, find_origin(model, passes, options));
}

}  // namespace edgewise::train
