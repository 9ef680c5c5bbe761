// Averaged weights in whole runs, and the patience that ends one: what is evaluated and kept, and that both
// go on where a run was stopped.
#include <edgewise/train/weight_average.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <stdexcept>

#include <gmock/gmock.h>

#include <edgewise/train/checkpoint.h>

#include "kit/message_of.h"
#include "kit/scratch_folder.h"
#include "train/tiny_run.h"

namespace edgewise::train {
namespace {

using kit::message_of;
using kit::ScratchFolder;
using tiny_run::comparable_metrics;
using tiny_run::expect_same_run;
using tiny_run::number;
using tiny_run::run;
using tiny_run::tiny_data;
using tiny_run::tiny_recipe;

// The same average, kept by hand beside a run that only differs in what it evaluates.
TEST(WeightAverage, IsEvaluatedAndKept) {
  const ScratchFolder scratch;
  std::vector<std::string> settings = {"train.eval_every=1", "train.checkpoint_every=1",
                                       "train.schedule=constant", "train.warmup_steps=0"};
  std::map<std::string, at::Tensor> expected;  // in fp64
  run(tiny_recipe(settings), scratch / "plain", false, [&](int64_t step) {
    const double decay =
        std::min(0.9, (1.0 + static_cast<double>(step)) / (10.0 + static_cast<double>(step)));
    for (const auto& [name, tensor] :
         io::load_safetensors(scratch / "plain/checkpoints/last.safetensors").tensors) {
      if (name.starts_with("optimizer/")) continue;
      at::Tensor& average = expected[name];
      // Parameters move by at most 3e-3 a step, so what they were before the first one hardly matters.
      average = step == 1 ? tensor.to(at::kDouble) : decay * average + (1 - decay) * tensor.to(at::kDouble);
    }
  });
  settings.push_back("train.average=0.9");
  const Recipe averaged = tiny_recipe(settings);
  run(averaged, scratch / "averaged");

  const auto plain = io::load_safetensors(scratch / "plain/checkpoints/last.safetensors"),
             last = io::load_safetensors(scratch / "averaged/checkpoints/last.safetensors"),
             best = io::load_safetensors(scratch / "averaged/checkpoints/best.safetensors");
  double apart = 0;
  for (const auto& [name, average] : expected) {
    EXPECT_TRUE(torch::equal(last.tensors.at(name), plain.tensors.at(name))) << name << " trains as before";
    const at::Tensor found = last.tensors.at("average/" + name).to(at::kDouble);
    EXPECT_LT((found - average).abs().max().item<double>(), 1e-3) << name;
    apart = std::max(apart, (found - last.tensors.at(name).to(at::kDouble)).abs().max().item<double>());
    EXPECT_EQ(best.tensors.count("average/" + name), 0u) << "what is kept is the average itself";
  }
  EXPECT_GT(apart, 4e-3) << "the average is not the weights";
  if (std::stoll(best.metadata.at("step")) == averaged.train.steps) {
    for (const auto& [name, average] : expected)
      EXPECT_TRUE(torch::equal(best.tensors.at(name), last.tensors.at("average/" + name))) << name;
  }
  TrainerOptions options;
  options.run_folder = scratch / "reader";
  Trainer reader(averaged, tiny_data(averaged), options);
  load_checkpoint((scratch / "averaged/checkpoints/last.safetensors").string(), reader.model());
  for (const auto& item : reader.model().named_parameters())
    EXPECT_TRUE(torch::equal(item.value(), last.tensors.at("average/" + item.key()))) << item.key();
  EXPECT_NE(number(comparable_metrics(scratch / "plain").back(), "loss"),
            number(comparable_metrics(scratch / "averaged").back(), "loss"));
}

TEST(WeightAverage, ContinuesBitForBit) {
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe({"train.average=0.9"});
  run(recipe, scratch / "whole");
  run(recipe, scratch / "parts", false, [](int64_t step) {
    if (step == 11) std::raise(SIGTERM);
  });
  run(recipe, scratch / "parts", true);
  expect_same_run(scratch / "whole", scratch / "parts");
  EXPECT_THAT(message_of([&] { run(tiny_recipe(), scratch / "whole", true); }),
              testing::HasSubstr("train.average was 0.9"));
}

TEST(Patience, EndsARunThatGetsNoBetter) {
  const ScratchFolder scratch;
  // A rate at which nothing is learnt: the first validation stays the best one.
  const std::vector<std::string> still = {"train.learning_rate=1e-30", "train.eval_every=2",
                                          "train.patience=3"};
  const RunSummary found = run(tiny_recipe(still), scratch / "run");
  EXPECT_EQ(found.best_step, 2);
  EXPECT_EQ(found.steps, 8);
  EXPECT_FALSE(found.interrupted);
  ASSERT_TRUE(found.test.has_value());
  // Validations count, not steps: looked at more rarely from now on, two more make five.
  const std::vector<std::string> rarer = {still[0], "train.eval_every=100", "train.patience=5",
                                          "train.steps=300"};
  run(tiny_recipe(still), scratch / "rarer");
  const RunSummary later = run(tiny_recipe(rarer), scratch / "rarer", true);
  EXPECT_EQ(later.steps, 200);
  EXPECT_EQ(later.best_step, 2);
  // Resumed, it is at its end still; with more patience it goes on.
  EXPECT_EQ(run(tiny_recipe(still), scratch / "run", true).steps, 8);
  EXPECT_EQ(run(tiny_recipe({still[0], still[1], "train.patience=0"}), scratch / "run", true).steps, 24);
}

TEST(WeightAverage, RefusesWhatDoesNotFit) {
  const torch::nn::Linear model(3, 2);
  EXPECT_THAT(message_of([&] { WeightAverage(*model, 1.0); }),
              testing::HasSubstr("a decay in [0, 1); got 1"));
  WeightAverage average(*model, 0.5);
  const auto before = average.state();
  EXPECT_THAT(message_of([&] {
                average.load_state({{"weight", at::ones({2, 3})}});
              }),
              testing::HasSubstr("the average of bias"));
  EXPECT_THAT(message_of([&] {
                average.load_state({{"weight", at::ones({3, 2})}, {"bias", at::ones(2)}});
              }),
              testing::HasSubstr("[2, 3]"));
  EXPECT_THAT(
      message_of([&] {
        average.load_state({{"weight", at::ones({2, 3})}, {"bias", at::ones(2)}, {"more", at::ones(1)}});
      }),
      testing::HasSubstr("another model"));
  for (const auto& [name, tensor] : average.state())
    EXPECT_TRUE(torch::equal(tensor, before.at(name))) << name << " is what it was";
}

// Nobody trains on with half of the averages; and the first error is the one that is heard.
TEST(WeightAverage, FailingToGiveTheWeightsBackIsAnError) {
  torch::nn::Linear model(3, 2);
  WeightAverage average(*model, 0.5);
  const at::Tensor weight = model->weight.detach().clone();
  const auto lose_weights = [&] { model->weight.set_data(at::ones(7)); };
  EXPECT_THROW(
      {
        const AveragedWeights averaged(&average);
        lose_weights();
      },
      c10::Error);
  model->weight.set_data(weight);
  EXPECT_THROW(
      {
        const AveragedWeights averaged(&average);
        lose_weights();
        throw std::domain_error("first");
      },
      std::domain_error);
}

}  // namespace
}  // namespace edgewise::train
