#include <edgewise/edges/edge_source.h>
#include <edgewise/train/optimizer.h>
#include <edgewise/train/recipe.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace edgewise::train {
namespace {

std::vector<std::pair<std::string, at::Tensor>> named(const torch::nn::Module& model) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& item : model.named_parameters()) result.emplace_back(item.key(), item.value());
  return result;
}

// One group, or a second one of the parameters that choose edges.
std::vector<torch::optim::OptimizerParamGroup> groups_of(
    const torch::nn::Module& model, const std::vector<std::pair<std::string, at::Tensor>>& parameters,
    double edge_rate) {
  std::set<const void*> of_sources;
  if (edge_rate != 1)
    for (const auto& module : model.modules(/*include_self=*/false))
      if (dynamic_cast<const EdgeSource*>(module.get()))
        for (const at::Tensor& parameter : module->parameters())
          of_sources.insert(parameter.unsafeGetTensorImpl());
  std::vector<at::Tensor> others, chosen;
  for (const auto& [name, parameter] : parameters)
    (of_sources.count(parameter.unsafeGetTensorImpl()) ? chosen : others).push_back(parameter);
  std::vector<torch::optim::OptimizerParamGroup> groups = {torch::optim::OptimizerParamGroup(others)};
  if (!chosen.empty()) groups.emplace_back(chosen);
  return groups;
}

void check_moment(const std::string& name, const at::Tensor& found, const at::Tensor& parameter) {
  TORCH_CHECK_VALUE(found.sizes() == parameter.sizes() && found.scalar_type() == parameter.scalar_type(),
                    "Optimizer: expected ", name, " to be ", parameter.scalar_type(), " ", parameter.sizes(),
                    "; got ", found.scalar_type(), " ", found.sizes(),
                    ". The checkpoint belongs to another model.");
}

}  // namespace

OptimizerKind parse_optimizer(std::string_view name) {
  if (name == "adamw") return OptimizerKind::kAdamW;
  if (name == "sgd") return OptimizerKind::kSgd;
  TORCH_CHECK_VALUE(false, "optimizer: expected adamw or sgd; got '", name, "'");
}

OptimizerOptions optimizer_options(const TrainRecipe& train) {
  return {.kind = parse_optimizer(train.optimizer),
          .momentum = train.momentum,
          .nesterov = train.nesterov,
          .beta2 = train.beta2,
          .eps = train.eps,
          .weight_decay = train.weight_decay,
          .edge_rate = train.edge_rate};
}

Optimizer::Optimizer(const torch::nn::Module& model, const OptimizerOptions& options)
    : parameters_(named(model)),
      adam_(groups_of(model, parameters_, options.edge_rate), torch::optim::AdamWOptions()
                                                                  .betas(std::make_tuple(0.9, options.beta2))
                                                                  .eps(options.eps)
                                                                  .weight_decay(options.weight_decay)),
      options_(options) {
  TORCH_CHECK_VALUE(options.momentum >= 0 && options.momentum < 1,
                    "Optimizer: expected a momentum in [0, 1); got ", options.momentum);
  TORCH_CHECK_VALUE(!options.nesterov || options.momentum > 0,
                    "Optimizer: expected a momentum above 0 with nesterov; got ", options.momentum);
}

void Optimizer::zero_grad() {
  adam_.zero_grad();
}

void Optimizer::add_l2(double weight) {
  if (weight == 0) return;
  torch::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters_)
    if (parameter.grad().defined()) parameter.grad().add_(parameter, weight);
}

struct Optimizer::Guard {
  std::optional<at::Tensor> divisor;  // of the gradients
  std::optional<at::Tensor> stop;     // 1 = no update
};

void Optimizer::set(const SchedulePoint& point) {
  double factor = 1;
  for (auto& group : adam_.param_groups()) {
    auto& options = static_cast<torch::optim::AdamWOptions&>(group.options());
    options.lr(point.learning_rate *
               std::exchange(factor, options_.edge_rate));  // the second group is of edge sources
    options.betas(std::make_tuple(point.beta1, std::get<1>(options.betas())));
  }
}

void Optimizer::step(const SchedulePoint& point) {
  set(point);
  if (options_.kind == OptimizerKind::kSgd)
    step_sgd({});
  else if (all_on_gpu())
    step_on_gpu({});
  else
    adam_.step();
}

void Optimizer::step(const SchedulePoint& point, const at::Tensor& norm, double max_norm) {
  set(point);
  if (all_on_gpu()) {
    Guard guard;
    guard.stop = norm.isfinite().logical_not().to(at::kFloat);
    if (max_norm > 0) guard.divisor = (norm / max_norm).clamp_min(1).to(at::kFloat);
    return options_.kind == OptimizerKind::kSgd ? step_sgd(guard) : step_on_gpu(guard);
  }
  const double value = norm.item<double>();
  if (!std::isfinite(value)) return;
  if (max_norm > 0 && value > max_norm) {
    torch::NoGradGuard no_grad;
    for (at::Tensor& gradient : gradients()) gradient.mul_(max_norm / value);
  }
  if (options_.kind == OptimizerKind::kSgd)
    step_sgd({});
  else
    adam_.step();
}

// Weight decay is part of the gradient, as in torch::optim::SGD, and goes through the momentum.
void Optimizer::step_sgd(const Guard& guard) {
  torch::NoGradGuard no_grad;
  for (const auto& group : adam_.param_groups()) {
    std::vector<at::Tensor> parameters, gradients, momenta;
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      parameters.push_back(parameter);
      gradients.push_back(parameter.grad());
      if (options_.momentum == 0) continue;  // torch then wants none
      at::Tensor& momentum = momenta_[parameter.unsafeGetTensorImpl()];
      if (!momentum.defined()) momentum = at::zeros_like(parameter, at::MemoryFormat::Preserve);
      momenta.push_back(momentum);
    }
    if (parameters.empty()) continue;
    at::_fused_sgd_(parameters, gradients, momenta, options_.weight_decay, options_.momentum,
                    static_cast<const torch::optim::AdamWOptions&>(group.options()).lr(), /*dampening=*/0,
                    options_.nesterov, /*maximize=*/false, /*is_first_step=*/false, guard.divisor,
                    guard.stop);
  }
}

// What torch::optim::AdamW::step() does, with its state, in a kernel or two instead of a dozen a parameter.
void Optimizer::step_on_gpu(const Guard& guard) {
  torch::NoGradGuard no_grad;
  for (const auto& group : adam_.param_groups()) {
    const auto& options = static_cast<const torch::optim::AdamWOptions&>(group.options());
    std::vector<at::Tensor> parameters, gradients, averages, squares, steps;
    std::map<int64_t, at::Tensor> step_tensors;  // most parameters have made equally many
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      auto& slot = adam_.state()[parameter.unsafeGetTensorImpl()];
      if (!slot) {
        auto fresh = std::make_unique<torch::optim::AdamWParamState>();
        fresh->step(0);
        fresh->exp_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
        fresh->exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
        slot = std::move(fresh);
      }
      auto& state = static_cast<torch::optim::AdamWParamState&>(*slot);
      state.step(state.step() + 1);
      at::Tensor& step = step_tensors[state.step()];
      if (!step.defined())
        step = at::full({}, static_cast<double>(state.step()), parameter.options().dtype(at::kFloat));
      parameters.push_back(parameter);
      gradients.push_back(parameter.grad());
      averages.push_back(state.exp_avg());
      squares.push_back(state.exp_avg_sq());
      steps.push_back(step);
    }
    if (parameters.empty()) continue;
    at::_fused_adamw_(parameters, gradients, averages, squares, /*max_exp_avg_sqs=*/{}, steps, options.lr(),
                      std::get<0>(options.betas()), std::get<1>(options.betas()), options.weight_decay(),
                      options.eps(), /*amsgrad=*/false, /*maximize=*/false, guard.divisor, guard.stop);
  }
}

std::vector<at::Tensor> Optimizer::gradients() const {
  std::vector<at::Tensor> result;
  for (const auto& [name, parameter] : parameters_)
    if (parameter.grad().defined()) result.push_back(parameter.grad());
  return result;
}

bool Optimizer::all_on_gpu() const {
  return std::ranges::all_of(parameters_, [](const auto& item) { return item.second.is_cuda(); });
}

at::Tensor Optimizer::gradient_norm() const {
  torch::NoGradGuard no_grad;
  const std::vector<at::Tensor> all = gradients();
  if (all.empty()) return at::zeros({}, at::kDouble);
  if (all_on_gpu()) return at::stack(at::_foreach_norm(all, 2, at::kDouble)).square().sum().sqrt();
  std::vector<at::Tensor> squares;
  for (const at::Tensor& gradient : all) squares.push_back(gradient.to(at::kDouble).square().sum());
  return at::stack(squares).sum().sqrt();
}

std::map<std::string, at::Tensor> Optimizer::state() const {
  std::map<std::string, at::Tensor> result;
  for (const auto& [name, parameter] : parameters_)
    if (const auto found = momenta_.find(parameter.unsafeGetTensorImpl()); found != momenta_.end())
      result["momentum/" + name] = found->second;
  for (const auto& [name, parameter] : parameters_) {
    const auto found = adam_.state().find(parameter.unsafeGetTensorImpl());
    if (found == adam_.state().end()) continue;
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(*found->second);
    result["exp_avg/" + name] = state.exp_avg();
    result["exp_avg_sq/" + name] = state.exp_avg_sq();
    result["step/" + name] = at::scalar_tensor(state.step(), at::kLong);
  }
  return result;
}

void Optimizer::load_momenta(const std::map<std::string, at::Tensor>& tensors) {
  std::map<const void*, at::Tensor> loaded;
  for (const auto& [name, parameter] : parameters_) {
    const auto found = tensors.find("momentum/" + name);
    if (found == tensors.end()) continue;
    check_moment(found->first, found->second, parameter);
    loaded[parameter.unsafeGetTensorImpl()] = at::empty_like(parameter).copy_(found->second);
  }
  TORCH_CHECK_VALUE(
      loaded.size() == tensors.size(), "Optimizer: expected momenta of this model's ", parameters_.size(),
      " parameters only; got ", tensors.size() - loaded.size(),
      " tensors of other names. The checkpoint belongs to another model, or to a run with AdamW.");
  momenta_ = std::move(loaded);
}

void Optimizer::load_state(const std::map<std::string, at::Tensor>& tensors) {
  torch::NoGradGuard no_grad;
  if (options_.kind == OptimizerKind::kSgd) return load_momenta(tensors);
  std::vector<std::pair<void*, std::unique_ptr<torch::optim::AdamWParamState>>> loaded;
  size_t used = 0;
  for (const auto& [name, parameter] : parameters_) {
    const auto average = tensors.find("exp_avg/" + name), square = tensors.find("exp_avg_sq/" + name),
               step = tensors.find("step/" + name);
    const int present = (average != tensors.end()) + (square != tensors.end()) + (step != tensors.end());
    if (present == 0) continue;
    TORCH_CHECK_VALUE(present == 3, "Optimizer: expected exp_avg, exp_avg_sq and step of ", name,
                      "; got only ", present, " of them. The checkpoint is incomplete.");
    check_moment(average->first, average->second, parameter);
    check_moment(square->first, square->second, parameter);
    TORCH_CHECK_VALUE(step->second.numel() == 1 && step->second.scalar_type() == at::kLong,
                      "Optimizer: expected ", step->first, " to be one int64; got ",
                      step->second.scalar_type(), " ", step->second.sizes());
    auto state = std::make_unique<torch::optim::AdamWParamState>();
    state->exp_avg(average->second.detach().clone().to(parameter.device()));
    state->exp_avg_sq(square->second.detach().clone().to(parameter.device()));
    state->step(step->second.item<int64_t>());
    loaded.emplace_back(parameter.unsafeGetTensorImpl(), std::move(state));
    used += 3;
  }
  TORCH_CHECK_VALUE(used == tensors.size(), "Optimizer: expected state for this model's ", parameters_.size(),
                    " parameters only; got ", tensors.size() - used,
                    " tensors of other names. The checkpoint belongs to another model.");
  adam_.state().clear();
  for (auto& [key, state] : loaded) adam_.state()[key] = std::move(state);
}

}  // namespace edgewise::train
