// The cost of whole recipes: formulas against what torch is seen to run, and measured memory.
#include <edgewise/train/model_cost.h>

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>

#include "kit/multiply_adds.h"

namespace edgewise::train {
namespace {

Recipe small_recipe(const std::string& kind, const std::string& task = "listops") {
  const bool has_modes = attention_kind(kind).variant && !attention_kind(kind).reads("sbm");
  std::vector<std::string> settings = {"attention.kind=" + kind};
  if (has_modes) settings.push_back(kind + ".mode=harness");
  Recipe recipe = parse_recipe(R"(
[model]
layers = 2
dim = 16
heads = 2
hidden = 24
[performer]
features = 8
[linformer]
projected_length = 6
[nystromformer]
landmarks = 16
conv_kernel = 3
[reformer]
chunk = 8
)",
                               "small", settings);
  recipe.data.name = task;
  recipe.model.max_length = 64;
  return recipe;
}

CostOptions only_formulas(std::optional<double> density = std::nullopt) {
  CostOptions options;
  options.density = density;
  options.memory = false;
  return options;
}

double memory(const std::string& kind, int64_t length, int64_t batch = 1) {
  CostOptions options;
  options.length = length;
  options.batch = batch;
  return *recipe_cost(small_recipe(kind), options).memory_per_example;
}

class CostOf : public testing::TestWithParam<std::tuple<const char*, const char*>> {};  // kind, task

TEST_P(CostOf, AWholeModelIsWhatTorchRuns) {
  const auto [kind, task] = GetParam();
  const Recipe recipe = small_recipe(kind, task);
  const RecipeCost cost = recipe_cost(recipe, only_formulas());
  EXPECT_EQ(cost.length, 64);
  EXPECT_FALSE(cost.memory_per_example.has_value());
  const auto dataset = noise_dataset(recipe);
  const ModelPtr model = build_model(recipe, *dataset);
  model->eval();
  constexpr std::array<int64_t, 1> kFirst = {0};
  const Batch batch = dataset->batch(data::Split::kTrain, kFirst);
  const double counted = kit::MultiplyAdds::of([&] {
    const torch::NoGradGuard no_grad;
    model->forward({.batch = batch});
  });
  EXPECT_EQ(cost.model_flops, 2 * counted);
  EXPECT_LT(cost.attention_flops, cost.model_flops);
}
INSTANTIATE_TEST_SUITE_P(Kinds, CostOf,
                         testing::Combine(testing::Values("linear", "performer", "linformer", "nystromformer",
                                                          "reformer"),
                                          testing::Values("listops", "retrieval")));

TEST(Cost, DensityIsGivenOrMeasured) {
  const Recipe recipe = small_recipe("sbm");
  const RecipeCost measured = recipe_cost(recipe, only_formulas());
  EXPECT_NEAR(measured.density, 0.25, 0.05);  // untrained
  const RecipeCost given = recipe_cost(recipe, only_formulas(0.01));
  EXPECT_EQ(given.density, 0.01);
  EXPECT_LT(given.attention_flops, measured.attention_flops);
  EXPECT_EQ(recipe_cost(small_recipe("dense"), only_formulas(0.01)).density, 1);
  // The harness says it of itself, run or not.
  EXPECT_EQ(recipe_cost(small_recipe("reformer")).density, 2 * 2 * 8 / 64.0);
  EXPECT_EQ(recipe_cost(small_recipe("reformer"), only_formulas(0.01)).density, 2 * 2 * 8 / 64.0);
}

TEST(Cost, MemoryGrowsAsTheLengthOrItsSquare) {
  EXPECT_NEAR(memory("linear", 1024) / memory("linear", 512), 2, 0.2);
  // Dropout makes torch's dense attention on the CPU keep the weights of all pairs.
  EXPECT_GT(memory("dense", 1024) / memory("dense", 512), 3);
  EXPECT_NEAR(memory("linear", 256, 4) / memory("linear", 256, 1), 1, 0.1);  // per example
}

TEST(Cost, ComparesWithTheSameModel) {
  const Recipe dense = dense_recipe(small_recipe("linformer"));
  EXPECT_EQ(dense.attention.kind, "dense");
  EXPECT_EQ(dense.model, small_recipe("linformer").model);
  // q, k, v and output projections, MLP, heads, classifier: 2 per multiply-add.
  const double n = 64, e = 16, f = 24;
  const double expected = 2 * 2 * (4 * n * e * e + 2 * n * e * f + 2 * n * n * e) + 2 * (e * 128 + 128 * 10);
  EXPECT_EQ(recipe_cost(dense, only_formulas()).model_flops, expected);
}

TEST(Cost, UnknownTasksAreNamed) {
  Recipe recipe = small_recipe("linear");
  recipe.data.name = "music";
  EXPECT_THAT([&] { noise_dataset(recipe); },
              testing::ThrowsMessage<c10::ValueError>(testing::HasSubstr("got 'music'")));
}

}  // namespace
}  // namespace edgewise::train
