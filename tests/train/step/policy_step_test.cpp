// Training steps with a source that learns by reward.
#include <edgewise/edges/sac_edges.h>
#include <edgewise/train/step.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "models/tiny_model.h"

namespace edgewise::train {
namespace {

using namespace testing_kit;

EdgeSourceFactory sac_factory(SacEstimator estimator, SacSharing sharing = SacSharing::kPerLayer,
                              RewardBaseline baseline = RewardBaseline::kRunningMean) {
  SacEdgesOptions options(2, 16);
  options.node_dim = 6;
  options.alpha = 2;
  options.estimator = estimator;
  options.sharing = sharing;
  options.baseline = baseline;
  options.entropy_weight = 0.01;
  options.distilled_rows = 3;
  auto factory = std::make_shared<SacEdgesFactory>(options);
  return [factory](int64_t layer) { return (*factory)(layer); };
}

ModelPtr make_model(bool tokens, EdgeSourceFactory edges) {
  torch::manual_seed(5);
  ClassifierOptions options = tiny_options(std::move(edges));
  options.encoder.dropout = 0;
  options.encoder.attention_dropout = 0;
  if (tokens) return TokenClassifier(options).ptr();
  return SequenceClassifier(options).ptr();
}

Batch make_batch(bool tokens) {
  Batch batch;
  batch.towers = {{.tokens = random_tokens(6, 10, 1), .mask = length_mask({10, 3, 7, 10, 5, 10}, 10)}};
  torch::manual_seed(6);
  batch.labels =
      tokens ? torch::randint(0, 3, {6, 10}, torch::kLong) : torch::randint(0, 3, {6}, torch::kLong);
  return batch;
}

struct Outcome {
  StepReport report;
  std::map<std::string, at::Tensor> gradients;
};

Outcome step_on(const ModelPtr& model, const Batch& batch, const StepOptions& options, uint64_t step = 8) {
  model->zero_grad();
  Outcome result;
  result.report = accumulate_gradients(*model, batch, options, {.seed = 3, .step = step});
  for (const auto& item : model->named_parameters())
    if (item.value().grad().defined()) result.gradients[item.key()] = item.value().grad().clone();
  return result;
}

Outcome step_of(const ModelPtr& model, bool tokens, const StepOptions& options, uint64_t step = 8) {
  return step_on(model, make_batch(tokens), options, step);
}

class PolicySteps : public testing::TestWithParam<std::tuple<SacEstimator, SacSharing, bool>> {};
INSTANTIATE_TEST_SUITE_P(All, PolicySteps,
                         testing::Combine(testing::Values(SacEstimator::kCounterfactual,
                                                          SacEstimator::kPaired, SacEstimator::kReinforce,
                                                          SacEstimator::kDistillation),
                                          testing::Values(SacSharing::kAllLayers, SacSharing::kPerHead),
                                          testing::Bool()));

TEST_P(PolicySteps, MicroBatchesEqualTheWholeBatch) {
  const auto [estimator, sharing, tokens] = GetParam();
  const auto run = [&, e = estimator, s = sharing, t = tokens](int64_t micro) {
    // A new model each time: a step tells the baseline its rewards.
    return step_of(make_model(t, sac_factory(e, s)), t, {.micro_batch = micro});
  };
  const Outcome whole = run(0);
  EXPECT_GT(whole.gradients.at("encoder.layers.0.self_attn.edges.node_weight").abs().max().item<double>(), 0);
  for (const int64_t micro : {1, 4}) {
    const Outcome part = run(micro);
    EXPECT_EQ(part.report.edges, whole.report.edges);
    const PolicyReport &a = *part.report.policy, &b = *whole.report.policy;
    EXPECT_NEAR(a.reward, b.reward, 1e-6);
    EXPECT_NEAR(a.entropy, b.entropy, 1e-5);
    EXPECT_NEAR(a.log_prob, b.log_prob, 1e-3);
    EXPECT_NEAR(a.gradient_variance, b.gradient_variance, 1e-3 * b.gradient_variance);
    for (const auto& [name, gradient] : whole.gradients)
      EXPECT_TRUE(torch::allclose(part.gradients.at(name), gradient, 1e-3, 1e-6)) << name;
  }
}

TEST(PolicyStep, RewardIsTheLogLikelihoodAndBaselineWhatWasSeenBefore) {
  const ModelPtr model = make_model(false, sac_factory(SacEstimator::kReinforce));
  const StepReport first = step_of(model, false, {}, 1).report, second = step_of(model, false, {}, 2).report;
  EXPECT_NEAR(first.policy->reward, -first.task_loss, 1e-5);
  EXPECT_EQ(first.policy->baseline, 0);
  EXPECT_NEAR(second.policy->baseline, first.policy->reward, 1e-6);
  EXPECT_GT(first.policy->entropy, 0);
  EXPECT_LT(first.policy->log_prob, 0);
  EXPECT_GT(first.policy->gradient_variance, 0);
}

TEST(PolicyStep, LearnedBaselineGetsItsGradient) {
  const ModelPtr model = make_model(
      false, sac_factory(SacEstimator::kReinforce, SacSharing::kPerLayer, RewardBaseline::kLearned));
  const Outcome found = step_of(model, false, {});
  EXPECT_GT(found.gradients.at("encoder.layers.1.self_attn.edges.value2.bias").abs().item<double>(), 0);
}

TEST(PolicyStep, SeveralDrawsPerItem) {
  const auto run = [&](int64_t samples) {
    return step_of(make_model(false, sac_factory(SacEstimator::kReinforce)), false,
                   {.edge_samples = samples});
  };
  const Outcome one = run(1), three = run(3);
  EXPECT_EQ(three.report.edges, 3 * one.report.edges);
  EXPECT_NEAR(three.report.policy->reward, -three.report.task_loss, 1e-5);
  EXPECT_NE(three.report.policy->reward, one.report.policy->reward);
  const char* name = "encoder.layers.0.self_attn.edges.node_weight";
  EXPECT_FALSE(torch::allclose(one.gradients.at(name), three.gradients.at(name)));
}

TEST(PolicyStep, PatternsAndDenseAttentionHaveNone) {
  EXPECT_FALSE(step_of(make_model(false, {}), false, {}).report.policy.has_value());
  EXPECT_FALSE(step_of(make_model(false, sbm_factory()), false, {}).report.policy.has_value());
}

TEST(Targets, NegativeLabelsAreNone) {
  Batch batch = make_batch(true);
  const at::Tensor logits = torch::randn({6, 10, 3});
  const int64_t before = tasks::cross_entropy().count_targets(batch);
  batch.labels[0].narrow(0, 0, 4).fill_(-1);
  EXPECT_EQ(tasks::cross_entropy().count_targets(batch), before - 4);
  const at::Tensor changed = logits.clone();
  changed[0].narrow(0, 0, 4).fill_(3);
  EXPECT_EQ(tasks::cross_entropy().score(logits, batch).loss.item<double>(),
            tasks::cross_entropy().score(changed, batch).loss.item<double>());
  EXPECT_TRUE(torch::equal(tasks::cross_entropy().item_rewards(logits, batch),
                           tasks::cross_entropy().item_rewards(changed, batch)));
  // The mean over an item's targets of the right answers' log-probability.
  const at::Tensor log_p = logits[1].slice(0, 0, 3).to(torch::kDouble).log_softmax(-1);
  const double expected = log_p.gather(1, batch.labels[1].slice(0, 0, 3).unsqueeze(1)).mean().item<double>();
  EXPECT_NEAR(tasks::cross_entropy().item_rewards(logits, batch)[1].item<double>(), expected, 1e-12);
}

TEST(Targets, LogitsInBf16AreSummedInFp32) {
  const Batch batch = make_batch(true);
  const at::Tensor logits = torch::randn({6, 10, 3}).to(torch::kBFloat16).requires_grad_();
  const at::Tensor wide = logits.detach().to(torch::kDouble).requires_grad_();
  const at::Tensor sum = tasks::cross_entropy().score(logits, batch).loss,
                   expected = tasks::cross_entropy().score(wide, batch).loss;
  EXPECT_EQ(sum.scalar_type(), torch::kFloat);
  EXPECT_NEAR(sum.item<double>(), expected.item<double>(), 1e-4);
  sum.backward();
  expected.backward();
  // Rounded once, into the logits' own type.
  EXPECT_TRUE(torch::allclose(logits.grad().to(torch::kDouble), wide.grad(), 1.0 / 256, 1e-6));
}

// A model that answers for three tokens an item learns what it learns from labels of these three.
TEST(PolicySteps, PlacesStandForLabelsOfTheirTokens) {
  for (const SacEstimator estimator : {SacEstimator::kPaired, SacEstimator::kReinforce}) {
    Batch few = make_batch(/*tokens=*/true), all = few;
    const at::Tensor places =
        torch::tensor({0, 1, 2, 2, 0, 1, 4, 6, 5, 9, 0, 3, 1, 4, 2, 8, 9, 7}).view({6, 3});
    few.more["places"] = places;
    few.labels = all.labels.gather(1, places);
    all.labels = at::full_like(all.labels, -1).scatter(1, places, few.labels);
    const Outcome found = step_on(make_model(true, sac_factory(estimator)), few, {.micro_batch = 4}),
                  expected = step_on(make_model(true, sac_factory(estimator)), all, {.micro_batch = 4});
    EXPECT_NEAR(found.report.loss, expected.report.loss, 1e-6);
    ASSERT_EQ(found.gradients.size(), expected.gradients.size());
    for (const auto& [name, gradient] : expected.gradients)
      EXPECT_TRUE(at::allclose(found.gradients.at(name), gradient, 1e-4, 1e-6)) << name;
  }
}

}  // namespace
}  // namespace edgewise::train
