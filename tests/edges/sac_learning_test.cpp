// What SacEdges learns from: every estimator against the exact gradient by enumeration of all walks.
//
// The items of a batch are copies of one input, so a batch of B items is B independent draws, and
// item_gradients() gives each draw's own gradient of the node projection: mean, standard error and variance
// come from those.
#include <edgewise/edges/sac_edges.h>
#include <edgewise/ops/functional.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>

#include "edges/sac_kit.h"

namespace edgewise {
namespace {

using kit::sac_options;
using kit::sac_predictor;
using kit::WalkKind;

struct Problem {
  int64_t n;
  bool linear;  // whether the reward is linear in the attention output
  at::Tensor q = kit::randn({1, 1, n, 4}, 1, at::kDouble), k = kit::randn({1, 1, n, 4}, 2, at::kDouble),
             v = kit::randn({1, 1, n, 4}, 3, at::kDouble), tokens = kit::randn({1, n, 4}, 4, at::kDouble),
             weight = kit::randn({1, 1, n, 4}, 5, at::kDouble);

  EdgeRequest request(int64_t copies) const {
    EdgeRequest result;
    result.query = q.expand({copies, 1, n, 4});
    result.key = k.expand({copies, 1, n, 4});
    result.tokens = tokens.expand({copies, n, 4});
    result.random.seed = 11;
    return result;
  }
  // [B, 1, n, 4] -> [B]: a log-likelihood, or a linear function of the output.
  at::Tensor reward(const at::Tensor& output) const {
    const at::Tensor score = (output * weight).sum({1, 2, 3});
    return linear ? score : at::log_sigmoid(score);
  }
  at::Tensor reward_of(const EdgeChoice& choice) const {
    const int64_t copies = choice.edges.shape().batch;
    const at::Tensor query = q.expand({copies, 1, n, 4}).contiguous(),
                     key = k.expand({copies, 1, n, 4}).contiguous(),
                     value = v.expand({copies, 1, n, 4}).contiguous();
    return reward(choice.learner
                      ? functional::edge_attention(query, key, value, choice.edges, *choice.learner).output
                      : functional::edge_attention(query, key, value, choice.edges));
  }
};

// Every list of actions a walk can take, each as one item.
sac::WalkResult all_walks(SacWalk walk, int64_t n, int64_t alpha) {
  std::vector<std::vector<int64_t>> lists;  // of one walker: ordered, without repetition
  const int64_t length = walk == SacWalk::kRooted ? alpha : alpha * n,
                outcomes = walk == SacWalk::kRooted ? n : n * n;
  std::vector<int64_t> list;
  const std::function<void()> extend = [&] {
    if (static_cast<int64_t>(list.size()) == length) return lists.push_back(list);
    for (int64_t next = 0; next < outcomes; ++next) {
      if (std::find(list.begin(), list.end(), next) != list.end()) continue;
      list.push_back(next);
      extend();
      list.pop_back();
    }
  };
  extend();
  const auto count = static_cast<int64_t>(lists.size());
  at::Tensor table = at::empty({count, length}, at::kLong);
  for (int64_t i = 0; i < count; ++i) table[i].copy_(torch::tensor(lists[static_cast<size_t>(i)]));
  sac::WalkResult result;
  result.steps = length;
  if (walk == SacWalk::kPairs) {
    result.source = table.div(n, "floor").unsqueeze(1);
    result.destination = table.remainder(n).unsqueeze(1);
    return result;
  }
  // The walkers of a rooted walk choose independently: all combinations.
  int64_t items = 1;
  for (int64_t i = 0; i < n; ++i) items *= count;
  std::vector<at::Tensor> rows;
  at::Tensor rest = at::arange(items);
  for (int64_t i = 0; i < n; ++i) {
    rows.push_back(table.index_select(0, rest.remainder(count)));
    rest = rest.div(count, "floor");
  }
  result.destination = at::cat(rows, 1).unsqueeze(1);  // [items, 1, n * alpha]
  result.source = at::arange(n).repeat_interleave(alpha).view({1, 1, -1}).expand_as(result.destination);
  return result;
}

struct Statistics {
  at::Tensor mean, error;  // of the gradient of -reward, [embed_dim * node_dim]
  double variance = 0;     // summed over its entries
};

SacEdgesOptions learning_options(const WalkKind& kind, int64_t alpha, SacEstimator estimator) {
  SacEdgesOptions options = sac_options(1, kind, alpha);
  options.node_dim = 3;
  options.estimator = estimator;
  options.baseline = RewardBaseline::kNone;
  return options;
}

// d(-E[R]) / d(node_weight) by summing over all walks.
at::Tensor exact_gradient(const Problem& problem, SacEdgesOptions options) {
  options.estimator = SacEstimator::kReinforce;
  SacEdges source = sac_predictor(options);
  const sac::WalkResult walks = all_walks(options.walk, problem.n, options.alpha);
  const EdgeRequest request = problem.request(walks.destination.size(0));
  const sac::WalkInputs inputs = source->walk_inputs(request);
  const sac::WalkResult result = kit::given_walk(source, inputs, walks);
  const at::Tensor p = result.log_prob.sum({1, 2}).exp();
  EXPECT_NEAR(p.sum().item<double>(), 1, 1e-12);
  const at::Tensor rewards = problem.reward_of(source->choice_of(inputs, result, request)).detach();
  (p * -rewards).sum().backward();
  return source->node_weight.grad().flatten();
}

Statistics sampled_gradient(const Problem& problem, const SacEdgesOptions& options, int64_t draws,
                            double baseline) {
  SacEdges source = sac_predictor(options);
  if (baseline != 0) source->rewards->observe(torch::full({1}, baseline, at::kDouble));
  const EdgeChoice choice = source->choose(problem.request(draws));
  const at::Tensor rewards = problem.reward_of(choice);
  // Items are draws of one input: each stands for itself, hence sums.
  at::Tensor loss = policy_loss(*choice.policy, rewards).sum();
  if (choice.learner) loss = loss - rewards.sum();
  loss.backward();
  const at::Tensor each = item_gradients(*choice.policy);
  const at::Tensor variance = each.var(0);
  return {each.mean(0), (variance / static_cast<double>(draws)).sqrt(), variance.sum().item<double>()};
}

double worst_z(const Statistics& found, const at::Tensor& exact) {
  const at::Tensor z = (found.mean - exact) / found.error.clamp_min(1e-12);
  return z.abs().max().item<double>();
}

constexpr WalkKind kHalves{"blocks", SacWalk::kRooted, 2};
using Case = std::tuple<WalkKind, int64_t, int64_t>;  // walk, n, alpha
class Enumeration : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Small, Enumeration,
                         testing::Values(Case{kit::kRooted, 3, 1}, Case{kit::kRooted, 3, 2},
                                         Case{kit::kRooted, 4, 1}, Case{kit::kRooted, 4, 2},
                                         Case{kit::kPairs, 3, 1}, Case{kHalves, 3, 1}, Case{kHalves, 3, 2},
                                         Case{kHalves, 4, 1}, Case{kHalves, 4, 2}));

// 12 entries and 5 estimates a case: the largest |z| of honest estimates stays below 4.5 but once in 1,500
// runs; the seeds are fixed.
constexpr double kBound = 4.5;
constexpr int64_t kDraws = 20000;

TEST_P(Enumeration, ReinforceIsUnbiasedWithAndWithoutBaseline) {
  const auto [walk, n, alpha] = GetParam();
  const Problem problem{n, /*linear=*/false};
  SacEdgesOptions options = learning_options(walk, alpha, SacEstimator::kReinforce);
  const at::Tensor exact = exact_gradient(problem, options);
  EXPECT_GT(exact.abs().max().item<double>(), 1e-3) << "there is something to learn";
  const Statistics plain = sampled_gradient(problem, options, kDraws, 0);
  options.baseline = RewardBaseline::kRunningMean;
  const Statistics based = sampled_gradient(problem, options, kDraws, -0.7);
  EXPECT_LT(worst_z(plain, exact), kBound);
  EXPECT_LT(worst_z(based, exact), kBound);
  std::printf("%s n=%d alpha=%d: variance %.3g without baseline, %.3g with\n", walk.name, static_cast<int>(n),
              static_cast<int>(alpha), plain.variance, based.variance);
}

// For a reward that is linear in the output, removal is exact. One edge a source: leaving it out is a
// baseline that the action does not touch. Several: later actions of the row depend on it.
TEST_P(Enumeration, EdgeCreditIsUnbiasedWhereItsBaselineMayStand) {
  const auto [walk, n, alpha] = GetParam();
  if (!walk.rooted()) GTEST_SKIP() << "actions of pairs all depend on earlier ones";
  const Problem problem{n, /*linear=*/true};
  SacEdgesOptions options = learning_options(walk, alpha, SacEstimator::kEdgeCredit);
  const at::Tensor exact = exact_gradient(problem, options);
  const Statistics one = sampled_gradient(problem, options, kDraws, 0);
  if (alpha == 1) {
    EXPECT_LT(worst_z(one, exact), kBound);
  }
  options = learning_options(walk, alpha, SacEstimator::kReinforce);
  const Statistics scalar = sampled_gradient(problem, options, kDraws, 0);
  EXPECT_LT(worst_z(scalar, exact), kBound);
  if (walk.block == 0) {  // so it is for these problems; with three keys in two blocks it is not
    EXPECT_LT(one.variance, scalar.variance);
  }
  std::printf("%s n=%d alpha=%d, linear: variance %.3g by reward, %.3g leaving one out (bias %.2g of %.2g)\n",
              walk.name, static_cast<int>(n), static_cast<int>(alpha), scalar.variance, one.variance,
              (one.mean - exact).norm().item<double>(), exact.norm().item<double>());
}

TEST(CreditByEdge, CutsTheVarianceOfLongSequences) {
  const Problem problem{32, /*linear=*/false};
  SacEdgesOptions options = learning_options(kit::kRooted, 4, SacEstimator::kReinforce);
  options.baseline = RewardBaseline::kRunningMean;
  SacEdges source = sac_predictor(options);
  const double mean = problem.reward_of(source->choose(problem.request(256))).mean().item<double>();
  const Statistics scalar = sampled_gradient(problem, options, 512, 0);
  const Statistics based = sampled_gradient(problem, options, 512, mean);
  options = learning_options(kit::kRooted, 4, SacEstimator::kEdgeCredit);
  const Statistics one = sampled_gradient(problem, options, 512, 0);
  std::printf(
      "rooted n=32 alpha=4: variance %.3g by reward, %.3g with its mean as baseline, %.3g leaving one out\n",
      scalar.variance, based.variance, one.variance);
  EXPECT_LT(10 * one.variance, based.variance);
}

TEST(Policy, LearnedBaselineFollowsTheReward) {
  SacEdgesOptions options = learning_options(kit::kRooted, 1, SacEstimator::kReinforce);
  options.baseline = RewardBaseline::kLearned;
  const Problem problem{4, false};
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
  SacEdges source = sac_predictor(learning_options(kit::kRooted, 1, SacEstimator::kReinforce));
  source->options.baseline = RewardBaseline::kRunningMean;
  const Problem problem{4, false};
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
  policy.log_prob = torch::tensor({-1.0, -2.0}, at::kDouble);
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

TEST(Estimators, ImproveTheReward) {
  const Problem problem{8, false};
  for (const auto& [kind, estimator] :
       {std::pair(kit::kRooted, SacEstimator::kReinforce), std::pair(kit::kRooted, SacEstimator::kEdgeCredit),
        std::pair(kit::kRooted, SacEstimator::kStraightThrough), std::pair(kHalves, SacEstimator::kReinforce),
        std::pair(kHalves, SacEstimator::kEdgeCredit)}) {
    SacEdgesOptions options = learning_options(kind, 2, estimator);
    options.baseline = RewardBaseline::kRunningMean;
    SacEdges source = sac_predictor(options, 7, 0.5);
    torch::optim::Adam adam(source->parameters(), torch::optim::AdamOptions(0.02));
    double first = 0, last = 0;
    for (int step = 0; step < 150; ++step) {
      adam.zero_grad();
      EdgeRequest request = problem.request(32);
      request.random.step = static_cast<uint64_t>(step);
      const EdgeChoice choice = source->choose(request);
      const at::Tensor rewards = problem.reward_of(choice);
      at::Tensor loss = policy_loss(*choice.policy, rewards).mean();
      if (choice.learner) loss = loss - rewards.mean();
      loss.backward();
      adam.step();
      choice.policy->rewards->observe(rewards);
      if (step < 10) first += rewards.mean().item<double>() / 10;
      if (step >= 140) last += rewards.mean().item<double>() / 10;
    }
    std::printf("%s, %s: reward %.3f before, %.3f after\n", kind.name, to_string(estimator).data(), first,
                last);
    EXPECT_GT(last, first * 0.8) << to_string(estimator);  // rewards are negative
  }
}

class Distillation : public testing::TestWithParam<WalkKind> {};
INSTANTIATE_TEST_SUITE_P(Rooted, Distillation, testing::Values(kit::kRooted, kHalves),
                         [](const auto& given) { return std::string(given.param.name); });

TEST_P(Distillation, ApproachesDenseAttention) {
  const Problem problem{8, false};
  SacEdgesOptions options = learning_options(GetParam(), 2, SacEstimator::kDistillation);
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
  // What it then chooses first is what dense attention weighs most. In blocks the heaviest key may lie in a
  // block that another one outweighs, and a block's mean cannot say it all: there the divergence alone
  // counts.
  if (GetParam().block > 0) return;
  source->eval();
  source->options.test_decoding = WalkDecoding::kGreedy;
  source->options.alpha = 1;
  const at::Tensor chosen = source->choose(problem.request(1)).edges.to_mask()[0][0].to(at::kLong).argmax(-1);
  const at::Tensor wanted = at::matmul(problem.q, problem.k.transpose(2, 3))[0][0].argmax(-1);
  EXPECT_TRUE(at::equal(chosen, wanted));
}

}  // namespace
}  // namespace edgewise
