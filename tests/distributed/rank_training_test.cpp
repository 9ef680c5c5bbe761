// The same run by one, two and four ranks: the same edges, and the same losses up to rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <edgewise/io/safetensors.h>

#include <torch/torch.h>

#include "distributed/rank_runs.h"

namespace edgewise::distributed {
namespace {

using kit::ScratchFolder;

constexpr const char* kSbm = "[attention]\nkind = \"sbm\"\nclusters = 4\n";
constexpr double kRounding = 2e-4;

TEST(Ranks, AnyNumberTrainsWhatOneProcessTrains) {
  const ScratchFolder scratch;
  // Ordinary dropout, dropout of attention, the penalty, averaged weights; micro-batches of 2 of a batch
  // of 8.
  const std::string recipe =
      write_recipe(scratch, "sbm", kSbm, "density_weight = 1e-2\naverage = 0.9\naverage_last = 2\n");
  const std::string alone = train(scratch, 0, {recipe}, "alone");
  for (const int ranks : {1, 2, 4}) {
    const std::string run = train(scratch, ranks, {recipe}, "of" + std::to_string(ranks));
    expect_same_training(alone, run, kRounding);
    EXPECT_TRUE(std::filesystem::exists(run + "/checkpoints/mean.safetensors"));
  }
}

TEST(Ranks, PolicyGradientsBaselinesAndSecondDrawsAreThoseOfTheWholeBatch) {
  const ScratchFolder scratch;
  for (const std::string estimator : {"counterfactual", "reinforce", "paired"}) {
    const std::string recipe =
        write_recipe(scratch, estimator,
                     "[attention]\nkind = \"sac\"\n[sac]\nalpha = 2\nestimator = \"" + estimator + "\"\n",
                     "edge_samples = 2\n");
    const std::string alone = train(scratch, 0, {recipe, "--set", "train.steps=4"}, estimator + "0");
    expect_same_training(alone, train(scratch, 2, {recipe, "--set", "train.steps=4"}, estimator + "2"), 2e-3);
  }
}

TEST(Ranks, LanguageModelsCarryTheirMemoryRowByRow) {
  const ScratchFolder scratch;
  std::string text;
  for (int n = 0; n < 4000; ++n) text += static_cast<char>('a' + (n * n / 7 + n) % 11);
  scratch.write("text.txt", text);
  const std::string recipe = scratch.write("lm.toml", R"([data]
name = "characters"
path = "text.txt"
length = 16
[model]
layers = 2
dim = 16
heads = 2
hidden = 32
dropout = 0.0
causal = true
[attention]
kind = "transformer_xl"
[transformer_xl]
memory = 16
[train]
steps = 12
batch = 8
micro_batch = 2
eval_every = 6
checkpoint_every = 4
log_every = 1
threads = 1
)");
  const std::string alone = train(scratch, 0, {recipe}, "alone");
  expect_same_training(alone, train(scratch, 2, {recipe}, "of2"), kRounding);
  const auto a = io::load_safetensors(alone + "/checkpoints/last.safetensors"),
             b = io::load_safetensors(scratch.file("of2") + "/checkpoints/last.safetensors");
  ASSERT_EQ(a.tensors.count("memory/0"), 1u) << "a model that remembers";
  for (const char* layer : {"memory/0", "memory/1"})
    EXPECT_TRUE(torch::allclose(a.tensors.at(layer), b.tensors.at(layer), 1e-3, 1e-4)) << layer;
}

TEST(Ranks, ARunGoesOnWithAnotherNumberOfThem) {
  const ScratchFolder scratch;
  const std::string recipe = write_recipe(scratch, "sbm", kSbm, "density_weight = 1e-2\n");
  const std::string whole = train(scratch, 0, {recipe}, "whole");
  // The schedule is that of 12 steps: it is interrupted by its ranks, not by a shorter recipe.
  const std::vector<std::string> arguments = {recipe, "--resume", "--set", "train.schedule=constant"};
  const auto at = [&](const std::string& steps) {
    std::vector<std::string> result = arguments;
    result.insert(result.end(), {"--set", "train.steps=" + steps});
    return result;
  };
  const std::string constant = train(scratch, 0, at("12"), "constant");
  train(scratch, 2, at("4"), "changing");
  train(scratch, 1, at("8"), "changing");
  train(scratch, 0, at("10"), "changing");
  const std::string changing = train(scratch, 4, at("12"), "changing");
  const auto expected = edgewise::train::read_metrics(constant + "/metrics.jsonl"),
             found = edgewise::train::read_metrics(changing + "/metrics.jsonl");
  int64_t steps = 0;
  for (const auto& record : found) {
    const auto* const kind = edgewise::train::find_metric(record, "kind");
    if (!kind || std::get<std::string>(*kind) != "train") continue;
    ++steps;
    for (const auto& other : expected) {
      if (*edgewise::train::find_metric(other, "kind") != *kind ||
          number(other, "step") != number(record, "step"))
        continue;
      EXPECT_NEAR(number(other, "loss"), number(record, "loss"), kRounding) << number(record, "step");
    }
  }
  EXPECT_EQ(steps, 12);
}

}  // namespace
}  // namespace edgewise::distributed
