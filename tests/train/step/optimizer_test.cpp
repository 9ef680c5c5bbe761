// The optimiser: rates of its own for the parameters that choose edges.
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/train/optimizer.h>

#include <gtest/gtest.h>

#include <torch/nn/modules/linear.h>

namespace edgewise::train {
namespace {

struct LayerAndEdges : torch::nn::Module {
  LayerAndEdges() {
    torch::manual_seed(3);
    SbmEdgesOptions options(/*num_heads=*/2, /*head_dim=*/4);
    options.clusters = 3;
    edges = register_module("edges", SbmEdges(options));
    layer = register_module("layer", torch::nn::Linear(5, 6));
  }
  SbmEdges edges{nullptr};
  torch::nn::Linear layer{nullptr};
};

// How far one step with a gradient of ones moves each parameter, at a learning rate of 0.01.
std::map<std::string, double> moves(double edge_rate) {
  LayerAndEdges model;
  OptimizerOptions options;
  options.edge_rate = edge_rate;
  Optimizer optimizer(model, options);
  std::map<std::string, at::Tensor> before;
  for (const auto& item : model.named_parameters()) {
    before[item.key()] = item.value().detach().clone();
    item.value().mutable_grad() = at::ones_like(item.value());
  }
  optimizer.step({.learning_rate = 0.01, .beta1 = 0.9});
  std::map<std::string, double> result;
  for (const auto& item : model.named_parameters())
    result[item.key()] = (before[item.key()] - item.value().detach()).mean().item<double>();
  EXPECT_EQ(optimizer.state().size(), 3 * before.size()) << "names do not depend on groups";
  return result;
}

TEST(Optimizer, EdgeRateIsOfTheParametersThatChooseEdges) {
  for (const double rate : {1.0, 0.0, 0.25, 3.0})
    for (const auto& [name, move] : moves(rate)) {
      const bool chooses = name.starts_with("edges.");
      EXPECT_NEAR(move, chooses ? 0.01 * rate : 0.01, 1e-6) << name << " at " << rate;
    }
}

}  // namespace
}  // namespace edgewise::train
