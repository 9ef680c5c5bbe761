// What a policy says of its actions, as values: entropies are means over predictions, and rewards are scaled
// once.
#include <edgewise/edges/sac_edges.h>
#include <edgewise/edges/sbm_edges.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "edges/sac_kit.h"

namespace edgewise {
namespace {

// A predictor without preferences: every prediction is uniform over the keys that are left.
SacEdges indifferent(SacEdgesOptions options) {
  SacEdges source = kit::sac_predictor(std::move(options));
  const torch::NoGradGuard guard;
  for (const auto& parameter : source->parameters()) parameter.zero_();
  return source;
}

TEST(PolicyValues, EntropyIsAMeanOverPredictions) {
  for (const bool fused : {false, true}) {
    SacEdgesOptions options = kit::sac_options(1, SacWalk::kRooted, 2);
    options.fused = fused;
    SacEdges source = indifferent(options);
    EdgeRequest request = kit::sac_request(2, 1, 6);
    request.key_mask = at::arange(6).unsqueeze(0) < torch::tensor({6, 4}).unsqueeze(1);
    const EdgePolicy policy = *source->choose(request).policy;
    // Two predictions a query, among n keys and among n - 1; 6 queries in the first item, 4 in the second.
    for (const auto& [item, keys] : {std::pair{0, 6.0}, std::pair{1, 4.0}}) {
      EXPECT_NEAR(policy.entropy[item].item<double>(), (std::log(keys) + std::log(keys - 1)) / 2, 1e-12);
      EXPECT_NEAR(policy.log_prob[item].sum().item<double>(), -keys * (std::log(keys) + std::log(keys - 1)),
                  1e-10);
    }
  }
}

TEST(PolicyValues, RewardsAreScaledByOneOverTheirDeviation) {
  SacEdgesOptions options = kit::sac_options(1, SacWalk::kRooted, 1);
  options.estimator = SacEstimator::kReinforce;
  options.normalize_rewards = true;
  SacEdges source = kit::sac_predictor(options);
  source->rewards->observe(torch::tensor({-1.0, -9.0}, at::kDouble));
  const EdgePolicy policy = *source->choose(kit::sac_request(2, 1, 6)).policy;
  EXPECT_NEAR(policy.reward_scale.item<double>(), 1.0 / 4, 1e-9);
  EXPECT_NEAR(policy.baseline[0].item<double>(), -5, 1e-9);
  const at::Tensor loss = policy_loss(policy, torch::tensor({-4.0, -7.0}, at::kDouble));
  EXPECT_NEAR(loss[0].item<double>(), -(1.0 / 4) * policy.log_prob[0].sum().item<double>(), 1e-9);
  EXPECT_NEAR(loss[1].item<double>(), (2.0 / 4) * policy.log_prob[1].sum().item<double>(), 1e-9);
}

// Padding is no key: an item with few valid ones may probe a larger share of its pairs for the same budget.
TEST(ProbeBudget, IsPerValidKey) {
  SbmEdgesOptions options(1, 4);
  options.probe_rate = 0.5;
  options.probes_per_row = 3;
  SbmEdges source(options);
  EdgeRequest request;
  request.query = request.key = torch::randn({3, 1, 40, 4});
  request.tokens = torch::randn({3, 40, 4});
  request.random = {.seed = 3};
  request.key_mask = at::arange(40).unsqueeze(0) < torch::tensor({40, 10, 4}).unsqueeze(1);
  const EdgeChoice choice = source->choose(request);
  ASSERT_TRUE(choice.learner && choice.learner->probes);
  EXPECT_EQ(choice.learner->probe_rates, (std::vector<double>{3.0 / 40, 3.0 / 10, 0.5}));
}

}  // namespace
}  // namespace edgewise
