#include "train/pass.h"

#include <ATen/record_function.h>
#include <edgewise/graph/mask_counts.h>
#include <torch/types.h>

#include "ops/step_inputs.h"

namespace edgewise::train {
namespace {

using ops::HostNumber;

// Numbers that differ from one step to the next, even where the pass is replayed.
template <typename Read>
HostNumber weight(const std::shared_ptr<const PassWeights>& weights, Read read) {
  return {read(*weights), [=] { return read(*weights); }};
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
  const ModelOutput output = [&] {
    RECORD_USER_SCOPE("forward");
    const PrecisionGuard precision(options.precision, options.device);
    return model.forward(input);
  }();
  TORCH_CHECK_NOT_IMPLEMENTED(policy || output.policies.empty(),
                              "train: a source that learns by reward needs its rewards on the host in every "
                              "step; its passes cannot be recorded");
  const tasks::Score score = options.objective->score(output.logits, part);
  at::Tensor loss = ops::over(score.loss, weight(weights, [](const PassWeights& w) { return w.targets; }));
  const at::Tensor task_part = loss, none = at::zeros({}, loss.options().requires_grad(false));
  at::Tensor penalty = none, extra = none;
  for (size_t tower = 0; tower < output.tower_penalties.size(); ++tower)
    penalty = penalty + ops::times(output.tower_penalties[tower],
                                   weight(weights, [=](const PassWeights& w) { return w.penalties[tower]; }));
  if (weights->density_weight != 0 && !output.tower_penalties.empty())
    loss = loss + ops::times(penalty, weight(weights, [](const PassWeights& w) { return w.density_weight; }));
  if (output.extra_loss.defined()) {
    extra = ops::times(output.extra_loss, weight(weights, [](const PassWeights& w) { return w.extra; }));
    loss = loss + extra;
  }
  if (!output.policies.empty())
    loss = loss + policy->loss(output, options.objective->item_rewards(output.logits, part));
  {
    RECORD_USER_SCOPE("backward");
    loss.backward();
  }
  if (policy) policy->after_backward(output);

  const auto wide = [&](const at::Tensor& tensor) {
    return tensor.detach().to(task_part.device(), at::kDouble, /*non_blocking=*/true);
  };
  const at::Tensor density =
      ops::times(wide(output.densities), weight(weights, [](const PassWeights& w) { return w.density; }));
  PassOutput result;
  result.numbers = at::cat(
      {at::stack({wide(task_part), wide(penalty), wide(extra), wide(score.correct), wide(output.edge_count)}),
       density.reshape(-1)});
  result.heads = output.densities.size(-1);
  result.memories = output.memories;
  return result;
}

}  // namespace edgewise::train
