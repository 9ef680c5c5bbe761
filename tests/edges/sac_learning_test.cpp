// What SacEdges learns from: every estimator against the exact gradient by enumeration of all walks
// (edges/sac_enumeration.h).
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sac_edges.h>
#include <edgewise/ops/functional.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>

#include "edges/policy_probes.h"
#include "edges/sac_enumeration.h"
#include "edges/sac_kit.h"

namespace edgewise {
namespace {

using kit::exact_gradient;
using kit::learning_options;
using kit::Problem;
using kit::sac_predictor;
using kit::Statistics;

Statistics by_reward(const Problem& problem, const SacEdgesOptions& options, int64_t draws, double baseline) {
  SacEdges source = sac_predictor(options);
  if (baseline != 0) source->rewards->observe(torch::full({1}, baseline, at::kDouble));
  const EdgeChoice choice = source->choose(problem.request(draws));
  // Items are draws of one input: each stands for itself, hence sums.
  policy_loss(*choice.policy, -problem.losses_of(choice).sum(1)).sum().backward();
  return Statistics(item_gradients(*choice.policy));
}

Statistics by_pairs(const Problem& problem, SacEdgesOptions options, int64_t draws, bool by_query) {
  options.estimator = SacEstimator::kPaired;
  SacEdges source = sac_predictor(options);
  EdgeChoice first = source->choose(problem.request(draws)),
             second = source->choose(problem.request(draws, 1));
  first.policy->reaches_own_query_only = second.policy->reaches_own_query_only = by_query;
  paired_loss(*first.policy, *second.policy, problem.losses_of(first), problem.losses_of(second))
      .sum()
      .backward();
  return Statistics(item_gradients(*first.policy) + item_gradients(*second.policy));
}

Statistics by_effects(const Problem& problem, SacEdgesOptions options, int64_t draws) {
  options.estimator = SacEstimator::kCounterfactual;
  options.least_slope = 0;
  options.probes = static_cast<double>(problem.n);  // every absent key
  SacEdges source = sac_predictor(options);
  const EdgeChoice choice = source->choose(problem.request(draws));
  problem.losses_of(choice).sum().backward();
  return Statistics(item_gradients(*choice.policy));
}

double cosine(const at::Tensor& a, const at::Tensor& b) {
  return ((a * b).sum() / (a.norm() * b.norm())).item<double>();
}

using Case = std::tuple<SacWalk, int64_t, int64_t>;  // walk, n, alpha
class Enumeration : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Small, Enumeration,
                         testing::Values(Case{SacWalk::kRooted, 3, 1}, Case{SacWalk::kRooted, 3, 2},
                                         Case{SacWalk::kRooted, 4, 1}, Case{SacWalk::kRooted, 4, 2},
                                         Case{SacWalk::kPairs, 3, 1}));

// 12 entries and 4 estimates a case: the largest |z| of honest estimates stays below 4.5 but once in 1,500
// runs; the seeds are fixed.
constexpr double kBound = 4.5;
constexpr int64_t kDraws = 20000;

TEST_P(Enumeration, RewardsAndPairsAreUnbiasedForCrossEntropy) {
  const auto [walk, n, alpha] = GetParam();
  const Problem problem{n};
  SacEdgesOptions options = learning_options(walk, alpha, SacEstimator::kReinforce);
  const at::Tensor exact = exact_gradient(problem, options);
  EXPECT_GT(exact.abs().max().item<double>(), 1e-3) << "there is something to learn";
  const Statistics plain = by_reward(problem, options, kDraws, 0);
  options.baseline = RewardBaseline::kRunningMean;
  const Statistics based = by_reward(problem, options, kDraws, -1.4 * static_cast<double>(n));
  const Statistics items = by_pairs(problem, options, kDraws, false);
  EXPECT_LT(plain.worst_z(exact), kBound);
  EXPECT_LT(based.worst_z(exact), kBound);
  EXPECT_LT(items.worst_z(exact), kBound);
  double by_query = items.variance;
  if (walk == SacWalk::kRooted) {
    const Statistics queries = by_pairs(problem, options, kDraws, true);
    EXPECT_LT(queries.worst_z(exact), kBound);
    EXPECT_LT(queries.variance, items.variance) << "other queries' luck is noise";
    by_query = queries.variance;
  }
  std::printf("%s n=%d alpha=%d: variance %.3g by reward, %.3g with baseline, %.3g paired, %.3g by query\n",
              to_string(walk).data(), static_cast<int>(n), static_cast<int>(alpha), plain.variance,
              based.variance, items.variance, by_query);
}

// Biased: it adds up first-order effects of single edges, while a walk of alpha edges drops one to take
// another. It points the right way all the same, at a far smaller variance.
TEST_P(Enumeration, CounterfactualPointsTheRightWay) {
  const auto [walk, n, alpha] = GetParam();
  if (walk == SacWalk::kPairs) GTEST_SKIP() << "walks whose edges have no probability of their own";
  for (const bool is_linear : {true, false}) {
    const Problem problem{n, is_linear};
    const SacEdgesOptions options = learning_options(walk, alpha, SacEstimator::kReinforce);
    const at::Tensor exact = exact_gradient(problem, options);
    const Statistics effects = by_effects(problem, options, kDraws),
                     rewards = by_reward(problem, options, kDraws, 0);
    std::printf(
        "n=%d alpha=%d%s: cosine with the exact gradient %.3f, length %.2f of it; variance %.3g, by "
        "reward %.3g\n",
        static_cast<int>(n), static_cast<int>(alpha), is_linear ? " linear" : "", cosine(effects.mean, exact),
        (effects.mean.norm() / exact.norm()).item<double>(), effects.variance, rewards.variance);
    EXPECT_GT(cosine(effects.mean, exact), alpha == 1 ? 0.95 : 0.25);
    EXPECT_LT(effects.variance, rewards.variance);
  }
}

TEST(Paired, CutsTheVarianceOfLongSequences) {
  const Problem problem{32};
  SacEdgesOptions options = learning_options(SacWalk::kRooted, 4, SacEstimator::kReinforce);
  options.baseline = RewardBaseline::kRunningMean;
  SacEdges source = sac_predictor(options);
  const double mean = -problem.losses_of(source->choose(problem.request(256))).sum(1).mean().item<double>();
  const Statistics scalar = by_reward(problem, options, 512, mean),
                   queries = by_pairs(problem, options, 512, true),
                   effects = by_effects(problem, options, 512);
  std::printf("rooted n=32 alpha=4: variance %.3g by reward, %.3g by pairs, %.3g by effects\n",
              scalar.variance, queries.variance, effects.variance);
  EXPECT_LT(5 * queries.variance, scalar.variance);
}

// The value is p; the slope is p's own where it is steep enough.
TEST(Inclusion, ImprobableKeysStayWithinReach) {
  const at::Tensor x = torch::tensor({-9.0, -2.0, -0.1}, at::kDouble).requires_grad_();
  const at::Tensor p = x.exp(), found = with_least_slope(p, x, p, 0.25);
  EXPECT_TRUE(at::equal(found, p));
  found.sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), torch::tensor({0.25, 0.25, std::exp(-0.1)}, at::kDouble)));
  EXPECT_TRUE(with_least_slope(p, x, p, 0).is_same(p));
}

// Nor is the probability that a walk includes a key another one.
TEST(Inclusion, HasTheSameProbabilitiesWithALeastSlope) {
  for (const bool fused : {false, true}) {
    const auto values = [&](double least_slope) {
      SacEdgesOptions options = learning_options(SacWalk::kRooted, 3, SacEstimator::kCounterfactual);
      options.fused = fused;
      options.least_slope = least_slope;
      const EdgeChoice choice = sac_predictor(options)->choose(Problem{7}.request(1));
      return at::cat({choice.learner->values, choice.learner->probe_values});
    };
    EXPECT_TRUE(at::allclose(values(0), values(0.25), 1e-9, 1e-12));
  }
}

// Of one choice a query: the probabilities of its keys, and their gradients, whoever walks.
TEST(Inclusion, IsTheChoiceOfASingleStep) {
  for (const bool fused : {false, true}) {
    SacEdgesOptions options = learning_options(SacWalk::kRooted, 1, SacEstimator::kCounterfactual);
    options.fused = fused;
    options.probes = 7;
    options.least_slope = 0;
    const Problem problem{7};
    SacEdges source = sac_predictor(options);
    const EdgeRequest request = problem.request(1);
    const EdgeChoice choice = source->choose(request);
    const EdgeLearner& learner = *choice.learner;
    EXPECT_EQ(learner.values.size(0) + learner.probe_values.size(0), 7 * 7);
    EXPECT_NEAR((learner.values.sum() + learner.probe_values.sum()).item<double>(), 7, 1e-4);
    const at::Tensor of_chosen = choice.policy->log_prob.exp().flatten();
    EXPECT_TRUE(at::allclose(learner.values, of_chosen.clamp_max(1 - 1e-6), 1e-9, 1e-9));
  }
}

class Included : public testing::TestWithParam<std::tuple<SacSharing, DistanceEncoding, SelfEdges, bool>> {};
INSTANTIATE_TEST_SUITE_P(All, Included,
                         testing::Combine(testing::Values(SacSharing::kPerLayer, SacSharing::kPerHead),
                                          testing::Values(DistanceEncoding::kNone, DistanceEncoding::kBias),
                                          testing::Values(SelfEdges::kAllowed, SelfEdges::kNever,
                                                          SelfEdges::kAlways),
                                          testing::Bool()));

// Behind the fused kernels the states are worked out again; in plain ATen the distributions are at hand.
TEST_P(Included, FusedWalksGiveWhatPlainOnesGive) {
  const auto [sharing, distance, self, causal] = GetParam();
  std::vector<at::Tensor> values, probe_values, gradients;
  for (const bool fused : {false, true}) {
    SacEdgesOptions options = kit::sac_options(2, SacWalk::kRooted, 3);
    options.sharing = sharing;
    options.distance = distance;
    options.self_edges = self;
    options.fused = fused;
    options.candidates = std::make_shared<WindowEdges>(9);
    SacEdges source = sac_predictor(options, 7, 0.7);
    EdgeRequest request = kit::sac_request(2, 2, 14);
    request.is_causal = causal;
    request.key_mask = at::arange(14).unsqueeze(0) < torch::tensor({14, 9}).unsqueeze(1);
    const EdgeChoice choice = source->choose(request);
    const EdgeLearner& learner = *choice.learner;
    ASSERT_GT(learner.probes->edge_count(), 20);
    const auto weights = [](const at::Tensor& of) { return at::arange(of.size(0), at::kDouble).cos(); };
    ((learner.values * weights(learner.values)).sum() +
     (learner.probe_values * weights(learner.probe_values)).sum())
        .backward();
    values.push_back(learner.values.detach());
    probe_values.push_back(learner.probe_values.detach());
    for (const auto& parameter : source->named_parameters())
      if (parameter.key() != "distance_table" || distance == DistanceEncoding::kBias)
        gradients.push_back(parameter.value().grad());
  }
  EXPECT_TRUE(at::allclose(values[0], values[1], 1e-6, 1e-8));
  EXPECT_TRUE(at::allclose(probe_values[0], probe_values[1], 1e-6, 1e-8));
  EXPECT_GT(probe_values[0].min().item<double>(), 0) << "probes are candidates";
  for (size_t n = 0; n < gradients.size() / 2; ++n) {
    EXPECT_GT(gradients[n].abs().max().item<double>(), 0);
    EXPECT_TRUE(at::allclose(gradients[n], gradients[n + gradients.size() / 2], 1e-5, 1e-8)) << n;
  }
}

TEST(Policy, LearnedBaselineFollowsTheReward) {
  SacEdgesOptions options = learning_options(SacWalk::kRooted, 1, SacEstimator::kReinforce);
  options.baseline = RewardBaseline::kLearned;
  const Problem problem{4};
  SacEdges source = sac_predictor(options);
  torch::optim::Adam adam(source->parameters(), torch::optim::AdamOptions(0.05));
  const at::Tensor wanted = at::full({8}, -3.5, at::kDouble);
  for (int step = 0; step < 200; ++step) {
    adam.zero_grad();
    policy_loss(*source->choose(problem.request(8)).policy, wanted).sum().backward();
    adam.step();
  }
  EXPECT_TRUE(at::allclose(source->choose(problem.request(8)).policy->baseline, wanted, 0, 0.05));
}

TEST(Policy, RunningMeanLeavesTheCurrentRewardOut) {
  SacEdges source = sac_predictor(learning_options(SacWalk::kRooted, 1, SacEstimator::kReinforce));
  source->options.baseline = RewardBaseline::kRunningMean;
  const Problem problem{4};
  const auto baseline = [&] { return source->choose(problem.request(2)).policy->baseline[0].item<double>(); };
  EXPECT_EQ(baseline(), 0);
  source->rewards->observe(torch::tensor({-1.0, -3.0}));
  EXPECT_NEAR(baseline(), -2, 1e-12);
  EXPECT_NEAR(source->rewards->deviation().item<double>(), 1, 1e-12);
  source->rewards->observe(torch::tensor({-4.0, -4.0}));
  EXPECT_NEAR(baseline(), (0.99 * -2 + -4) / 1.99, 1e-12);
}

// An objective is what its gradient is: each term alone, against finite differences or its definition.
TEST(Policy, TermsOfTheObjective) {
  EdgePolicy policy;
  policy.log_prob = torch::tensor({{-0.25, -0.75}, {-1.5, -0.5}}, at::kDouble);
  policy.entropy = torch::tensor({0.5, 0.25}, at::kDouble);
  policy.baseline = torch::tensor({-1.0, -1.0}, at::kDouble);
  policy.reward_scale = torch::tensor(2.0, at::kDouble);
  policy.distillation = torch::tensor({3.0, 4.0}, at::kDouble);
  policy.weights = {.reinforce = 1, .entropy = 0.1, .baseline = 0.5, .distillation = 10};
  const at::Tensor rewards = torch::tensor({-2.0, 1.0}, at::kDouble);
  // -(R - b) scale log p - 0.1 H + 0.5 (R - b)^2 + 10 KL
  EXPECT_TRUE(at::allclose(policy_loss(policy, rewards),
                           torch::tensor({-2.0 - 0.05 + 0.5 + 30, 8 - 0.025 + 2 + 40}, at::kDouble)));
}

TEST(Estimators, ReduceTheLoss) {
  const Problem problem{8};
  for (const auto& [walk, estimator] : {std::pair(SacWalk::kRooted, SacEstimator::kReinforce),
                                        std::pair(SacWalk::kRooted, SacEstimator::kPaired),
                                        std::pair(SacWalk::kRooted, SacEstimator::kCounterfactual),
                                        std::pair(SacWalk::kPairs, SacEstimator::kPaired)}) {
    SacEdgesOptions options = learning_options(walk, 2, estimator);
    options.baseline = RewardBaseline::kRunningMean;
    SacEdges source = sac_predictor(options, 7, 0.5);
    torch::optim::Adam adam(source->parameters(), torch::optim::AdamOptions(0.02));
    double first = 0, last = 0;
    for (int step = 0; step < 150; ++step) {
      adam.zero_grad();
      const auto draw = [&](uint32_t layer) {
        EdgeRequest request = problem.request(32, layer);
        request.random.step = static_cast<uint64_t>(step);
        EdgeChoice choice = source->choose(request);
        choice.policy->reaches_own_query_only = true;
        return choice;
      };
      const EdgeChoice choice = draw(0);
      const at::Tensor losses = problem.losses_of(choice);
      at::Tensor loss = policy_loss(*choice.policy, -losses.sum(1)).mean();
      if (choice.learner) loss = loss + losses.sum(1).mean();
      if (estimator == SacEstimator::kPaired) {
        const EdgeChoice other = draw(1);
        loss = loss + paired_loss(*choice.policy, *other.policy, losses, problem.losses_of(other)).mean();
      }
      loss.backward();
      adam.step();
      choice.policy->rewards->observe(-losses.sum(1));
      if (step < 10) first += losses.mean().item<double>() / 10;
      if (step >= 140) last += losses.mean().item<double>() / 10;
    }
    std::printf("%s, %s: loss %.3f before, %.3f after\n", to_string(walk).data(), to_string(estimator).data(),
                first, last);
    EXPECT_LT(last, first - 0.1) << to_string(estimator);
  }
}

TEST(Distillation, ApproachesDenseAttention) {
  const Problem problem{8};
  SacEdgesOptions options = learning_options(SacWalk::kRooted, 2, SacEstimator::kDistillation);
  options.node_dim = 16;
  options.distilled_rows = 8;
  SacEdges source = sac_predictor(options, 7, 0.5);
  torch::optim::Adam adam(source->parameters(), torch::optim::AdamOptions(0.02));
  double first = 0, last = 0;
  for (int step = 0; step < 300; ++step) {
    adam.zero_grad();
    EdgeRequest request = problem.request(16);
    request.random.step = static_cast<uint64_t>(step);
    const EdgeChoice choice = source->choose(request);
    const at::Tensor loss = policy_loss(*choice.policy, at::zeros({16}, at::kDouble)).mean();
    EXPECT_GE(choice.policy->distillation.min().item<double>(), 0);
    loss.backward();
    adam.step();
    if (step == 0) first = loss.item<double>();
    last = loss.item<double>();
  }
  EXPECT_LT(last, 0.25 * first);
  // What it then chooses first is what dense attention weighs most.
  source->eval();
  source->options.test_decoding = WalkDecoding::kGreedy;
  source->options.alpha = 1;
  const at::Tensor chosen = source->choose(problem.request(1)).edges.to_mask()[0][0].to(at::kLong).argmax(-1);
  const at::Tensor wanted = at::matmul(problem.q, problem.k.transpose(2, 3))[0][0].argmax(-1);
  EXPECT_TRUE(at::equal(chosen, wanted));
}

}  // namespace
}  // namespace edgewise
