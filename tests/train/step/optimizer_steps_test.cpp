// Steps of the optimiser on the CPU as numbers: AdamW by its formula, with settings that are nobody's
// default, and clipped gradients.
#include <edgewise/train/optimizer.h>

#include <gtest/gtest.h>

#include <torch/nn/modules/linear.h>

#include <cmath>
#include <vector>

namespace edgewise::train {
namespace {

constexpr double kBeta1 = 0.8, kBeta2 = 0.7, kEps = 0.05, kDecay = 0.3, kRate = 0.01;

OptimizerOptions unusual_options() {
  OptimizerOptions options;
  options.beta2 = kBeta2;
  options.eps = kEps;
  options.weight_decay = kDecay;
  return options;
}

// AdamW (Loshchilov and Hutter) in fp64, number by number.
struct AdamWByHand {
  at::Tensor value, average, square;
  int64_t steps = 0;

  explicit AdamWByHand(const at::Tensor& start)
      : value(start.to(at::kDouble)), average(at::zeros_like(value)), square(at::zeros_like(value)) {}
  void step(const at::Tensor& gradient) {
    const double t = static_cast<double>(++steps);
    value = value * (1 - kRate * kDecay);
    average = kBeta1 * average + (1 - kBeta1) * gradient;
    square = kBeta2 * square + (1 - kBeta2) * gradient.square();
    value = value - kRate * (average / (1 - std::pow(kBeta1, t))) /
                        ((square / (1 - std::pow(kBeta2, t))).sqrt() + kEps);
  }
};

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters, uint64_t seed) {
  torch::manual_seed(seed);
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : parameters)
    result.push_back(at::randn(parameter.sizes(), parameter.options().requires_grad(false)));
  return result;
}

// Three steps with these gradients, cut to max_norm (0 = whole), against the formula.
void expect_steps_by_hand(double max_norm) {
  torch::manual_seed(4);
  torch::nn::Linear model(5, 3);
  model->to(at::kDouble);
  std::vector<at::Tensor> parameters = model->parameters();
  std::vector<AdamWByHand> expected;
  for (const at::Tensor& parameter : parameters) expected.emplace_back(parameter.detach().clone());
  Optimizer optimizer(*model, unusual_options());
  bool any_cut = false, any_whole = false;
  for (uint64_t step = 0; step < 3; ++step) {
    std::vector<at::Tensor> gradients = gradients_of(parameters, step);
    // The second step stays below the limit.
    double norm = 0;
    for (at::Tensor& gradient : gradients) {
      if (step == 1) gradient.mul_(0.1);
      norm += gradient.square().sum().item<double>();
    }
    norm = std::sqrt(norm);
    const bool cut = max_norm > 0 && norm > max_norm;
    (cut ? any_cut : any_whole) = true;
    for (size_t n = 0; n < parameters.size(); ++n) {
      parameters[n].mutable_grad() = gradients[n].clone();
      expected[n].step(cut ? gradients[n] * (max_norm / norm) : gradients[n]);
    }
    EXPECT_NEAR(optimizer.gradient_norm().item<double>(), norm, 1e-12);
    const SchedulePoint point{.learning_rate = kRate, .beta1 = kBeta1};
    if (max_norm > 0)
      optimizer.step(point, optimizer.gradient_norm(), max_norm);
    else
      optimizer.step(point);
    for (size_t n = 0; n < parameters.size(); ++n)
      EXPECT_TRUE(at::allclose(parameters[n].detach(), expected[n].value, 1e-12, 1e-13)) << step << " " << n;
  }
  EXPECT_TRUE(any_whole);
  EXPECT_EQ(any_cut, max_norm > 0);
}

TEST(OptimizerSteps, AreAdamWs) {
  expect_steps_by_hand(0);
}

TEST(OptimizerSteps, CutGradientsToTheirNorm) {
  expect_steps_by_hand(1.5);
}

}  // namespace
}  // namespace edgewise::train
