// Gradients of whole models: finite differences in fp64 with given edges, and what reaches a learner.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/edges/patterns.h>
#include <edgewise/models/classifier.h>

#include <cmath>

#include "models/tiny_model.h"

namespace edgewise {
namespace {

using namespace testing_kit;

ModelInput ragged_input() {
  return {.batch = {.towers = {{.tokens = random_tokens(3, 7, 1), .mask = length_mask({7, 4, 0}, 7)}}},
          .random = {.seed = 2}};
}

TEST(ModelGradient, MatchesFiniteDifferences) {
  torch::manual_seed(9);
  const EdgeSet edges = EdgeSet::from_mask(torch::rand({3, 2, 7, 7}) < 0.4)
                            .restricted_to_keys(ragged_input().batch.towers[0].mask)
                            .restricted_to_queries(ragged_input().batch.towers[0].mask);
  auto model = tiny_model<SequenceClassifier>([&](int64_t) { return std::make_shared<GivenEdges>(edges); });
  model->to(torch::kDouble);
  const at::Tensor direction = torch::randn({3, 3}, torch::kDouble);
  const auto loss = [&] { return (model->forward(ragged_input()).logits * direction).sum(); };
  loss().backward();
  torch::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  for (const auto& item : model->named_parameters()) {
    at::Tensor flat = item.value().view(-1);
    const at::Tensor gradient = item.value().grad().view(-1);
    const int64_t stride = std::max<int64_t>(1, flat.numel() / 12);  // a dozen entries of every tensor
    for (int64_t i = 0; i < flat.numel(); i += stride) {
      const double value = flat[i].item<double>();
      flat[i] = value + kStep;
      const double above = loss().item<double>();
      flat[i] = value - kStep;
      const double below = loss().item<double>();
      flat[i] = value;
      EXPECT_NEAR(gradient[i].item<double>(), (above - below) / (2 * kStep), 1e-6)
          << item.key() << " [" << i << "]";
    }
  }
}

TEST(ModelGradient, ReachesEverySbmParameterFromTheTaskAlone) {
  auto model = tiny_model<SequenceClassifier>(sbm_factory());
  model->train();
  model->forward(ragged_input()).logits.square().sum().backward();
  int64_t seen = 0;
  for (const auto& item : model->named_parameters()) {
    if (item.key().find(".edges.") == std::string::npos) continue;
    ++seen;
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_GT(item.value().grad().abs().sum().item<double>(), 0) << item.key();
  }
  EXPECT_EQ(seen, 2 * 5);
}

TEST(ModelGradient, PenaltyIsTheMeanOverLayersAndHeads) {
  auto model = tiny_model<SequenceClassifier>(sbm_factory());
  model->train();
  const ModelOutput output = model->forward(ragged_input());
  ASSERT_TRUE(output.penalty.defined());
  EXPECT_EQ(output.penalty.dim(), 0);
  EXPECT_EQ(output.densities.sizes(), (std::vector<int64_t>{2, 2}));
  // The expected density and the measured one are the same quantity: over many draws, to five standard
  // errors.
  constexpr int64_t kDraws = 300;
  at::Tensor differences = at::empty({kDraws}, at::kDouble);
  {
    const torch::NoGradGuard guard;
    for (int64_t draw = 0; draw < kDraws; ++draw) {
      ModelInput input = ragged_input();
      input.random.step = static_cast<uint64_t>(draw);
      const ModelOutput drawn = model->forward(input);
      differences[draw] = drawn.densities.mean() - drawn.penalty;
    }
  }
  const double error = differences.std().item<double>() / std::sqrt(static_cast<double>(kDraws));
  EXPECT_NEAR(differences.mean().item<double>(), 0, 5 * error);
  EXPECT_LT(5 * error, 0.015) << "of densities near a quarter";
  output.penalty.backward();
  EXPECT_GT(model->named_parameters()["encoder.layers.0.self_attn.edges.clusters"]
                .grad()
                .abs()
                .sum()
                .item<double>(),
            0);
}

}  // namespace
}  // namespace edgewise
