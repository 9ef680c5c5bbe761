// Stochastic gradient descent with momentum, against torch's, and through a checkpoint.
#include <edgewise/train/optimizer.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/message_of.h"

namespace edgewise::train {
namespace {

struct Curve : torch::nn::Module {
  Curve() {
    torch::manual_seed(5);
    layer = register_module("layer", torch::nn::Linear(4, 3));
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 3)));
  }
  at::Tensor loss(int64_t step) {
    torch::manual_seed(100 + step);
    return layer->forward(torch::randn({5, 4})).square().sum() +
           conv->forward(torch::randn({2, 2, 4, 4})).square().sum();
  }
  torch::nn::Linear layer{nullptr};
  torch::nn::Conv2d conv{nullptr};
};

const OptimizerOptions kNesterov{
    .kind = OptimizerKind::kSgd, .momentum = 0.9, .nesterov = true, .weight_decay = 5e-3};

void steps(Curve& model, Optimizer& optimizer, int64_t first, int64_t last) {
  for (int64_t step = first; step < last; ++step) {
    optimizer.zero_grad();
    model.loss(step).backward();
    optimizer.step({.learning_rate = 0.01 / static_cast<double>(step + 1)});
  }
}

void expect_equal(const Curve& a, const Curve& b, double tolerance) {
  const auto of_b = b.named_parameters();
  for (const auto& item : a.named_parameters())
    EXPECT_TRUE(torch::allclose(item.value(), of_b[item.key()], tolerance, tolerance)) << item.key();
}

TEST(Sgd, IsTorchs) {
  for (const bool nesterov : {false, true}) {
    OptimizerOptions options = kNesterov;
    options.nesterov = nesterov;
    Curve ours, theirs;
    Optimizer optimizer(ours, options);
    steps(ours, optimizer, 0, 6);
    torch::optim::SGD torchs(theirs.parameters(),
                             torch::optim::SGDOptions(1).momentum(0.9).nesterov(nesterov).weight_decay(5e-3));
    for (int64_t step = 0; step < 6; ++step) {
      torchs.zero_grad();
      theirs.loss(step).backward();
      static_cast<torch::optim::SGDOptions&>(torchs.param_groups()[0].options())
          .lr(0.01 / static_cast<double>(step + 1));
      torchs.step();
    }
    expect_equal(ours, theirs, 1e-6);
  }
}

TEST(Sgd, GoesOnFromItsState) {
  Curve whole, half, rest;
  Optimizer of_whole(whole, kNesterov), of_half(half, kNesterov), of_rest(rest, kNesterov);
  steps(whole, of_whole, 0, 6);
  steps(half, of_half, 0, 3);
  {
    torch::NoGradGuard no_grad;
    for (auto& item : rest.named_parameters()) item.value().copy_(half.named_parameters()[item.key()]);
  }
  EXPECT_EQ(of_half.state().size(), 4u);
  EXPECT_TRUE(of_half.state().contains("momentum/layer.weight"));
  of_rest.load_state(of_half.state());
  steps(rest, of_rest, 3, 6);
  expect_equal(rest, whole, 0);
}

TEST(Sgd, CutsGradientsAndLeavesOutWhatIsNotFinite) {
  Curve model, before;
  Optimizer optimizer(model, {.kind = OptimizerKind::kSgd, .momentum = 0});
  model.loss(0).backward();
  const at::Tensor norm = optimizer.gradient_norm();
  optimizer.step({.learning_rate = 1}, norm, 0.5);
  double moved = 0;
  const auto old = before.named_parameters();
  for (const auto& item : model.named_parameters())
    moved += (item.value() - old[item.key()]).square().sum().item<double>();
  EXPECT_NEAR(std::sqrt(moved), 0.5, 1e-4);
  Curve other;
  Optimizer careful(other, kNesterov);
  other.loss(0).backward();
  careful.step({.learning_rate = 1}, at::full({}, NAN, at::kDouble), 0);
  expect_equal(other, before, 0);
}

TEST(Sgd, MistakesAreExplained) {
  Curve model;
  EXPECT_THROW(parse_optimizer("adam"), c10::ValueError);
  EXPECT_THROW(Optimizer(model, {.kind = OptimizerKind::kSgd, .momentum = 0, .nesterov = true}),
               c10::ValueError);
  Optimizer sgd(model, kNesterov), adam(model, {});
  model.loss(0).backward();
  adam.step({.learning_rate = 0.01});
  EXPECT_NE(kit::message_of([&] { sgd.load_state(adam.state()); }).find("a run with AdamW"),
            std::string::npos);
  EXPECT_THROW(sgd.load_state({{"momentum/layer.bias", torch::zeros({4})}}), c10::ValueError);
}

}  // namespace
}  // namespace edgewise::train
