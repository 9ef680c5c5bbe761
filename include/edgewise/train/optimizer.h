// AdamW over a model's named parameters, with its state as named tensors so that a checkpoint can hold it.
#pragma once

#include <edgewise/train/schedule.h>

#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace edgewise::train {

struct OptimizerOptions {
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
};

class Optimizer {
 public:
  explicit Optimizer(const torch::nn::Module& model, const OptimizerOptions& options = {});

  void zero_grad();
  void step(const SchedulePoint& point);  // one update with this learning rate and beta1
  // L2 norm over all gradients in double; infinite or NaN when any of them is.
  double gradient_norm() const;
  void scale_gradients(double factor);

  // "exp_avg/NAME", "exp_avg_sq/NAME" (shape of the parameter) and "step/NAME" (int64 scalar). A parameter
  // that has had no gradient yet has no state.
  std::map<std::string, at::Tensor> state() const;
  // Replaces the state. Throws, naming the first tensor that does not fit, before anything is changed.
  void load_state(const std::map<std::string, at::Tensor>& tensors);

 private:
  std::vector<std::pair<std::string, at::Tensor>> parameters_;
  torch::optim::AdamW adam_;
};

}  // namespace edgewise::train
