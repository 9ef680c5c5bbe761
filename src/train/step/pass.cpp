#include "train/step/pass.h"

#include <ATen/record_function.h>
#include <edgewise/graph/mask_counts.h>
#include <torch/types.h>

#include "ops/step_inputs.h"
#include "train/step/dropout_seed.h"

namespace edgewise::train {
namespace {

using ops::HostNumber;

// Numbers that differ from one step to the next, even where the pass is replayed.
template <typename Read>
HostNumber weight(const std::shared_ptr<const PassWeights>& weights, Read read) {
  return {read(*weights), [=] { return read(*weights); }};
}

// Over all draws.
tasks::Score summed(const std::vector<ModelOutput>& draws, const tasks::Objective& objective,
                    const Batch& part) {
  tasks::Score sum = objective.score(draws[0].logits, part);
  for (size_t other = 1; other < draws.size(); ++other) {
    const tasks::Score more = objective.score(draws[other].logits, part);
    sum.loss = sum.loss + more.loss;
    sum.correct = sum.correct + more.correct;
  }
  return sum;
}

}  // namespace

bool is_padded(const at::Tensor& host_mask) {
  return host_mask.defined() && !host_mask.all().item<bool>();
}

ModelInput make_input(const Pass& pass, const Batch& part) {
  ModelInput input{.batch = part, .random = pass.random, .memories = pass.memories};
  for (size_t tower = 0; tower < part.towers.size(); ++tower) {
    const at::Tensor &mask = part.towers[tower].mask, &host_mask = pass.host.towers[tower].mask;
    if (is_padded(host_mask))
      remember_mask_counts(mask, host_mask);
    else
      input.batch.towers[tower].mask = at::Tensor();
  }
  return input;
}

PassOutput run_pass(Model& model, const ModelInput& input, const Batch& part,
                    const std::shared_ptr<const PassWeights>& weights, const StepOptions& options,
                    PolicyStep* policy) {
  const auto forward = [&](const ModelInput& of) {
    RECORD_USER_SCOPE("forward");
    const PrecisionGuard precision(options.precision, options.device);
    return model.forward(of);
  };
  std::vector<ModelOutput> draws;
  draws.reserve(2);  // `output` stays where it is
  draws.push_back(forward(input));
  const ModelOutput& output = draws[0];
  TORCH_CHECK_NOT_IMPLEMENTED(policy || output.policies.empty(),
                              "train: a source that learns by reward needs its rewards on the host in every "
                              "step; its passes cannot be recorded");
  if (asks_for_second_draw(output)) {
    // Other edges, the same dropout: what differs between the two is the policy's doing.
    ModelInput again = input;
    again.random.layer += static_cast<uint32_t>(options.edge_samples) * kLayersPerDraw;
    seed_dropout(input.random);
    draws.push_back(forward(again));
  }
  const tasks::Score score = summed(draws, *options.objective, part);
  const auto draw_count = static_cast<double>(draws.size());
  const auto per_draw = [&](const at::Tensor& sum) { return draws.size() == 1 ? sum : sum / draw_count; };
  at::Tensor loss =
      per_draw(ops::over(score.loss, weight(weights, [](const PassWeights& w) { return w.targets; })));
  const at::Tensor task_part = loss, none = at::zeros({}, loss.options().requires_grad(false));
  at::Tensor penalty = none, extra = none;
  for (const ModelOutput& draw : draws) {
    for (size_t tower = 0; tower < draw.tower_penalties.size(); ++tower)
      penalty = penalty + per_draw(ops::times(
                              draw.tower_penalties[tower],
                              weight(weights, [=](const PassWeights& w) { return w.penalties[tower]; })));
    if (draw.extra_loss.defined())
      extra = extra + per_draw(ops::times(draw.extra_loss,
                                          weight(weights, [](const PassWeights& w) { return w.extra; })));
  }
  if (weights->density_weight != 0 && !output.tower_penalties.empty())
    loss = loss + ops::times(penalty, weight(weights, [](const PassWeights& w) { return w.density_weight; }));
  if (output.extra_loss.defined()) loss = loss + extra;
  if (!output.policies.empty()) loss = loss + policy->loss(draws, *options.objective, part, weights->targets);
  {
    RECORD_USER_SCOPE("backward");
    loss.backward();
  }
  if (policy && !output.policies.empty()) policy->after_backward(draws);

  const auto wide = [&](const at::Tensor& tensor) {
    return tensor.detach().to(task_part.device(), at::kDouble, /*non_blocking=*/true);
  };
  at::Tensor densities = wide(output.densities), edges = wide(output.edge_count);
  for (size_t other = 1; other < draws.size(); ++other) {
    densities = densities + wide(draws[other].densities);
    edges = edges + wide(draws[other].edge_count);
  }
  const at::Tensor density =
      ops::times(per_draw(densities), weight(weights, [](const PassWeights& w) { return w.density; }));
  PassOutput result;
  result.numbers =
      at::cat({at::stack({wide(task_part), wide(penalty), wide(extra), per_draw(wide(score.correct)), edges}),
               density.reshape(-1)});
  result.heads = output.densities.size(-1);
  result.memories = output.memories;
  return result;
}

}  // namespace edgewise::train
