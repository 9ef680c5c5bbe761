#include <edgewise/train/optimizer.h>

#include <cmath>
#include <memory>
#include <tuple>

#include <torch/types.h>
#include <torch/utils.h>

namespace edgewise::train {
namespace {

std::vector<std::pair<std::string, at::Tensor>> named(const torch::nn::Module& model) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& item : model.named_parameters()) result.emplace_back(item.key(), item.value());
  return result;
}

std::vector<at::Tensor> values(const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  std::vector<at::Tensor> result;
  for (const auto& [name, parameter] : parameters) result.push_back(parameter);
  return result;
}

void check_moment(const std::string& name, const at::Tensor& found, const at::Tensor& parameter) {
  TORCH_CHECK_VALUE(found.sizes() == parameter.sizes() && found.scalar_type() == parameter.scalar_type(),
                    "Optimizer: expected ", name, " to be ", parameter.scalar_type(), " ", parameter.sizes(),
                    "; got ", found.scalar_type(), " ", found.sizes(),
                    ". The checkpoint belongs to another model.");
}

}  // namespace

Optimizer::Optimizer(const torch::nn::Module& model, const OptimizerOptions& options)
    : parameters_(named(model)),
      adam_(values(parameters_), torch::optim::AdamWOptions()
                                     .betas(std::make_tuple(0.9, options.beta2))
                                     .eps(options.eps)
                                     .weight_decay(options.weight_decay)) {}

void Optimizer::zero_grad() {
  adam_.zero_grad();
}

void Optimizer::step(const SchedulePoint& point) {
  for (auto& group : adam_.param_groups()) {
    auto& options = static_cast<torch::optim::AdamWOptions&>(group.options());
    options.lr(point.learning_rate);
    options.betas(std::make_tuple(point.beta1, std::get<1>(options.betas())));
  }
  adam_.step();
}

double Optimizer::gradient_norm() const {
  torch::NoGradGuard no_grad;
  std::vector<at::Tensor> squares;
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.grad().defined()) squares.push_back(parameter.grad().to(at::kDouble).square().sum());
  }
  return squares.empty() ? 0 : std::sqrt(at::stack(squares).sum().item<double>());
}

void Optimizer::scale_gradients(double factor) {
  torch::NoGradGuard no_grad;
  for (auto& [name, parameter] : parameters_) {
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
  }
}

std::map<std::string, at::Tensor> Optimizer::state() const {
  std::map<std::string, at::Tensor> result;
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

void Optimizer::load_state(const std::map<std::string, at::Tensor>& tensors) {
  torch::NoGradGuard no_grad;
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
