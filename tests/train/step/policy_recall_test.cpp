// Policies learn associative recall: judged by the edges that they draw, not by their likeliest ones, which a
// policy without preferences can have right as well.
#include <edgewise/train/evaluate.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>

#include <gtest/gtest.h>

#include <cstdio>

#include "kit/scratch_folder.h"

namespace edgewise::train {
namespace {

// 8 facts, 8 questions, 2 of 16 keys a query.
Recipe recall_recipe(const std::vector<std::string>& more) {
  std::vector<std::string> all = {"data.length=16",
                                  "data.values=4",
                                  "data.validation_size=128",
                                  "data.test_size=256",
                                  "model.layers=1",
                                  "model.heads=1",
                                  "model.dim=32",
                                  "model.hidden=64",
                                  "model.dropout=0.0",
                                  "model.attention_dropout=0.0",
                                  "model.positions=none",
                                  "model.embedding_std=0.3",
                                  "train.batch=64",
                                  "train.learning_rate=3e-3",
                                  "train.schedule=constant",
                                  "train.eval_every=1000",
                                  "train.checkpoint_every=1000",
                                  "train.seed=1",
                                  "train.edge_rate=0.3"};
  all.insert(all.end(), more.begin(), more.end());
  return parse_recipe("[data]\nname = \"associative_recall\"\n", "recall", all);
}

Evaluation trained(const Recipe& recipe) {
  const kit::ScratchFolder scratch;
  TrainerOptions options;
  options.run_folder = scratch.path() / "run";
  return *Trainer(recipe, open_task(recipe), options).run().test;
}

class PolicyRecall : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Estimators, PolicyRecall, testing::Values("counterfactual", "paired"),
                         [](const auto& given) { return std::string(given.param); });

TEST_P(PolicyRecall, SampledEdgesAreRight) {
  const Evaluation found =
      trained(recall_recipe({"attention.kind=sac", "sac.alpha=2", "sac.test_decoding=sample",
                             std::string("sac.estimator=") + GetParam(), "sac.probes=4", "train.steps=500"}));
  ASSERT_TRUE(found.policy);
  std::printf("%s: %.3f with sampled edges, %.3f with greedy ones, entropy %.2f, recall %.3f\n", GetParam(),
              found.policy->sampled, found.policy->greedy, found.policy->entropy,
              *found.policy->sampled_recall);
  EXPECT_GT(found.policy->sampled, 0.97);
  EXPECT_GT(found.policy->greedy, 0.97);
  EXPECT_GT(*found.policy->sampled_recall, 0.9);
  EXPECT_LT(found.policy->entropy, 1.8)
      << "of 2.74 nats without preferences; the second prediction may have none";
  EXPECT_EQ(found.value(), found.policy->sampled) << "as the recipe decodes";
}

TEST(PolicyFigures, OfAPolicyWithoutPreferences) {
  const Evaluation found =
      trained(recall_recipe({"attention.kind=sac", "sac.alpha=2", "sac.test_decoding=greedy",
                             "sac.policy_weight=0", "train.steps=20"}));
  ASSERT_TRUE(found.policy);
  EXPECT_EQ(found.value(), found.policy->greedy);
  EXPECT_GT(found.policy->entropy, 2.3);
  EXPECT_NEAR(*found.policy->sampled_recall, 2.0 / 16, 0.06);
  EXPECT_FALSE(trained(recall_recipe({"attention.kind=random", "train.steps=5"})).policy);
}

}  // namespace
}  // namespace edgewise::train
