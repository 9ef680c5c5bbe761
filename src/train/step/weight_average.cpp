#include <edgewise/train/weight_average.h>

#include <algorithm>

#include <ATen/ops/_foreach_lerp.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace edgewise::train {

WeightAverage::WeightAverage(const torch::nn::Module& model, double decay) : decay_(decay) {
  TORCH_CHECK_VALUE(decay >= 0 && decay < 1, "WeightAverage: expected a decay in [0, 1); got ", decay);
  torch::NoGradGuard no_grad;
  for (const auto& item : model.named_parameters()) {
    names_.push_back(item.key());
    parameters_.push_back(item.value());
    averages_.push_back(item.value().detach().clone());
  }
}

void WeightAverage::update(int64_t steps) {
  torch::NoGradGuard no_grad;
  const double t = static_cast<double>(steps);
  const double decay = std::min(decay_, (1 + t) / (10 + t));
  at::_foreach_lerp_(averages_, parameters_, 1 - decay);
}

void WeightAverage::swap() {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor kept = parameters_[i].clone();
    parameters_[i].copy_(averages_[i]);
    averages_[i].copy_(kept);
  }
}

std::map<std::string, at::Tensor> WeightAverage::state() const {
  std::map<std::string, at::Tensor> result;
  for (size_t i = 0; i < names_.size(); ++i) result[names_[i]] = averages_[i];
  return result;
}

void WeightAverage::load_state(const std::map<std::string, at::Tensor>& tensors) {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto found = tensors.find(names_[i]);
    TORCH_CHECK_VALUE(found != tensors.end(), "WeightAverage: expected the average of ", names_[i],
                      "; the checkpoint has none. It is incomplete, or of a run without train.average.");
    TORCH_CHECK_VALUE(found->second.sizes() == averages_[i].sizes() &&
                          found->second.scalar_type() == averages_[i].scalar_type(),
                      "WeightAverage: expected the average of ", names_[i], " to be ",
                      averages_[i].scalar_type(), " ", averages_[i].sizes(), "; got ",
                      found->second.scalar_type(), " ", found->second.sizes(),
                      ". The checkpoint belongs to another model.");
  }
  TORCH_CHECK_VALUE(tensors.size() == names_.size(), "WeightAverage: expected averages of this model's ",
                    names_.size(), " parameters only; got ", tensors.size(),
                    ". The checkpoint belongs to another model.");
  for (size_t i = 0; i < names_.size(); ++i) averages_[i].copy_(tensors.at(names_[i]));
}

}  // namespace edgewise::train
