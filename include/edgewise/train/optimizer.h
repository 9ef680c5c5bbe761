// AdamW, or stochastic gradient descent with momentum, over a model's named parameters, with its state as
// named tensors so that a checkpoint can hold it.
//
//   sgd:  g += weight_decay p;  m = momentum m + g;  p -= rate (nesterov ? g + momentum m : m)
#pragma once

#include <edgewise/train/schedule.h>

#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace edgewise::train {

enum class OptimizerKind { kAdamW, kSgd };
OptimizerKind parse_optimizer(std::string_view name);  // "adamw" | "sgd"

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double momentum = 0.9;  // kSgd
  bool nesterov = false;  // kSgd
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
  double edge_rate = 1;  // times the learning rate: the rate of the parameters of edge sources
};

struct TrainRecipe;  // edgewise/train/recipe.h
OptimizerOptions optimizer_options(const TrainRecipe& train);

class Optimizer {
 public:
  explicit Optimizer(const torch::nn::Module& model, const OptimizerOptions& options = {});

  void zero_grad();
  // Adds weight * parameter to every gradient: the gradient of weight / 2 * the sum of squares.
  void add_l2(double weight);
  // L2 norm over all gradients, a double where they are; infinite or NaN when any of them is.
  at::Tensor gradient_norm() const;
  // One update with this learning rate and, of AdamW, beta1: on a GPU one kernel for all parameters,
  // elsewhere torch's.
  void step(const SchedulePoint& point);
  // The same with gradients cut to `max_norm` (0 = as they are), given their norm. Where that is not finite,
  // parameters stay what they are; only the count of steps goes on. Nothing waits for a GPU.
  void step(const SchedulePoint& point, const at::Tensor& norm, double max_norm);

  // "exp_avg/NAME", "exp_avg_sq/NAME" (shape of the parameter) and "step/NAME" (int64 scalar); of sgd
  // "momentum/NAME". A parameter that has had no gradient yet has no state.
  std::map<std::string, at::Tensor> state() const;
  // Replaces the state. Throws, naming the first tensor that does not fit, before anything is changed.
  void load_state(const std::map<std::string, at::Tensor>& tensors);

 private:
  std::vector<at::Tensor> gradients() const;  // those that there are
  bool all_on_gpu() const;
  struct Guard;  // what a GPU looks at before it updates
  void set(const SchedulePoint& point);
  void step_on_gpu(const Guard& guard);
  void step_sgd(const Guard& guard);
  void load_momenta(const std::map<std::string, at::Tensor>& tensors);

  std::vector<std::pair<std::string, at::Tensor>> parameters_;
  torch::optim::AdamW adam_;  // a group of its own for edge sources if they have a rate of their own
  OptimizerOptions options_;
  std::map<const void*, at::Tensor> momenta_;  // of sgd, by parameter
};

}  // namespace edgewise::train
