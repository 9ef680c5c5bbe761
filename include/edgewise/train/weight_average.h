// WeightAverage: the exponential moving average of a model's parameters, which is evaluated and kept in their
// place. With p the parameters after t steps, a their average and d the decay,
//
//   a <- d_t a + (1 - d_t) p,   d_t = min(d, (1 + t) / (10 + t)):
//
// the early steps, far from where training goes, are forgotten soon.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace edgewise::train {

class WeightAverage {
 public:
  WeightAverage(const torch::nn::Module& model, double decay);

  // After `steps` finished steps. Nothing waits for a GPU.
  void update(int64_t steps);
  // Exchanges the model's parameters and their averages where they lie: recorded passes hold on to the place.
  void swap();

  // By the parameters' names. load_state throws, naming the first tensor that is missing, left over or does
  // not fit, before anything is changed.
  std::map<std::string, at::Tensor> state() const;
  void load_state(const std::map<std::string, at::Tensor>& tensors);

 private:
  double decay_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_, averages_;
};

// The model has its averages while this lives; without an average nothing happens. A failure on the way back
// ends the run, as half of the averages would be trained on else; unless another error is on its way already,
// which is then the one to report.
class AveragedWeights {
 public:
  explicit AveragedWeights(WeightAverage* average) : average_(average), errors_(std::uncaught_exceptions()) {
    if (average_) average_->swap();
  }
  ~AveragedWeights() noexcept(false) {
    if (!average_) return;
    try {
      average_->swap();
    } catch (...) {
      if (std::uncaught_exceptions() == errors_) throw;
    }
  }
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  WeightAverage* average_;
  int errors_;
};

}  // namespace edgewise::train
