// SacEdges by its fused kernels: equal to the plain walk, whatever the threads and the CPU.
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sac_edges.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "edges/sac/sac_fused.h"
#include "edges/sac/sac_inputs.h"
#include "edges/sac_kit.h"
#include "kit/cpu_level_guard.h"

namespace edgewise {
namespace {

using kit::sac_options;
using kit::sac_predictor;
using kit::sac_request;
using kit::same_edges;

struct FusedCase {
  const char* name;
  bool causal, masked;
  int64_t alpha, budget, window;  // window 0 = none
  SelfEdges self;
  bool duplicates;
  DistanceEncoding distance;
};
void PrintTo(const FusedCase& c, std::ostream* stream) {
  *stream << c.name;
}
class Fused : public testing::TestWithParam<std::tuple<FusedCase, SacWalk>> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, Fused,
    testing::Combine(
        testing::Values(
            FusedCase{"plain", false, false, 3, 0, 0, SelfEdges::kAllowed, false, DistanceEncoding::kBias},
            FusedCase{"causal", true, true, 3, 0, 0, SelfEdges::kAllowed, false, DistanceEncoding::kNone},
            FusedCase{"window", false, true, 2, 0, 4, SelfEdges::kNever, false, DistanceEncoding::kBias},
            FusedCase{"causal_window", true, false, 2, 0, 4, SelfEdges::kAlways, false,
                      DistanceEncoding::kBias},
            FusedCase{"duplicates", false, true, 4, 0, 0, SelfEdges::kAllowed, true, DistanceEncoding::kBias},
            FusedCase{"budget", false, true, 1, 50, 0, SelfEdges::kAllowed, false, DistanceEncoding::kBias},
            FusedCase{"all", true, true, 30, 0, 0, SelfEdges::kAllowed, false, DistanceEncoding::kBias}),
        testing::Values(SacWalk::kRooted, SacWalk::kPairs)),
    [](const auto& given) {
      return std::string(to_string(std::get<1>(given.param))) + "_" + std::get<0>(given.param).name;
    });

TEST_P(Fused, EqualsThePlainWalk) {
  const auto& [c, walk] = GetParam();
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    SacEdgesOptions options = sac_options(2, walk, c.alpha);
    options.budget = c.budget;
    options.self_edges = c.self;
    options.duplicates = c.duplicates;
    options.distance = c.distance;
    options.sharing = SacSharing::kPerHead;
    options.detach_inputs = false;
    if (c.window > 0) options.candidates = std::make_shared<WindowEdges>(c.window);
    struct Found {
      EdgeChoice choice;
      std::vector<at::Tensor> gradients;
    };
    const auto run = [&, &setting = c](bool fused, WalkDecoding decoding) {
      options.fused = fused;
      options.train_decoding = decoding;
      SacEdges source = sac_predictor(options, 7, 1);
      source->to(dtype);
      EdgeRequest request = sac_request(3, 2, 21, dtype);
      request.is_causal = setting.causal;
      if (setting.masked)
        request.key_mask = at::arange(21).unsqueeze(0) < torch::tensor({21, 13, 0}).unsqueeze(1);
      request.tokens = request.tokens.requires_grad_();
      Found found{source->choose(request), {}};
      const at::Tensor weight = kit::randn({3}, 5, dtype);
      at::Tensor objective = (found.choice.policy->log_prob * weight.unsqueeze(1)).sum() +
                             (found.choice.policy->entropy * weight).sum();
      if (found.choice.learner) objective = objective + found.choice.learner->values.square().sum();
      std::vector<at::Tensor> inputs = {request.tokens};
      for (const at::Tensor& parameter : source->parameters()) inputs.push_back(parameter);
      if (objective.requires_grad())
        for (const at::Tensor& g : torch::autograd::grad({objective}, inputs, {}, false, false, true))
          found.gradients.push_back(g);
      return found;
    };
    const double close = dtype == at::kDouble ? 1e-10 : 2e-4;
    for (const WalkDecoding decoding : {WalkDecoding::kSample, WalkDecoding::kGreedy}) {
      const Found plain = run(false, decoding), fused = run(true, decoding);
      ASSERT_TRUE(same_edges(plain.choice.edges, fused.choice.edges));
      const EdgePolicy &a = *plain.choice.policy, &b = *fused.choice.policy;
      EXPECT_TRUE(at::allclose(a.log_prob, b.log_prob, close, close));
      EXPECT_TRUE(at::allclose(a.entropy, b.entropy, close, close));
      ASSERT_EQ(plain.choice.learner.has_value(), fused.choice.learner.has_value());
      if (plain.choice.learner) {
        EXPECT_TRUE(at::allclose(plain.choice.learner->values, fused.choice.learner->values, close, close));
      }
      if (c.alpha == 30) continue;  // nothing was chosen
      ASSERT_EQ(plain.gradients.size(), fused.gradients.size());
      for (size_t n = 0; n < plain.gradients.size(); ++n) {
        ASSERT_EQ(plain.gradients[n].defined(), fused.gradients[n].defined()) << n;
        if (plain.gradients[n].defined()) {
          EXPECT_TRUE(at::allclose(plain.gradients[n], fused.gradients[n], close, close))
              << n << ": " << (plain.gradients[n] - fused.gradients[n]).abs().max().item<double>();
        }
      }
    }
  }
}

TEST(FusedWalk, DoesNotDependOnThreadsOrCpuLevel) {
  SacEdgesOptions options(2, 8);
  options.alpha = 4;
  options.estimator = SacEstimator::kPaired;
  const auto gradient = [&] {
    torch::manual_seed(1);
    SacEdges source(options);
    source->choose(sac_request(2, 2, 150, at::kFloat)).policy->log_prob.sum().backward();
    return source->node_weight.grad().clone();
  };
  const at::Tensor best = gradient();
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_TRUE(at::equal(best, gradient()));
  at::set_num_threads(threads);
  for (const std::string& level : available_cpu_levels()) {
    const kit::ForcedCpuLevel forced(level.c_str());
    EXPECT_TRUE(at::allclose(best, gradient(), 1e-3, 1e-3)) << level;
  }
}

// A number added to all scores changes nothing, also where their exponentials are too large or too small.
TEST(FusedWalk, TakesScoresOfAnySize) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const auto run = [&](double added) {
      SacEdgesOptions options = sac_options(2, SacWalk::kRooted, 3);
      options.distance = DistanceEncoding::kBias;
      SacEdges source = sac_predictor(options);
      source->to(dtype);
      const EdgeRequest request = sac_request(2, 2, 40, dtype);
      {
        const torch::NoGradGuard guard;
        source->distance_table.add_(added);
      }
      EXPECT_TRUE(sac::fused_walk_applies(*source, request, WalkDecoding::kSample));
      return source->choose(request);
    };
    const EdgeChoice expected = run(0);
    for (const double added : {300., -300.}) {
      const EdgeChoice found = run(added);
      const double tolerance = dtype == at::kDouble ? 1e-9 : 2e-2;
      if (dtype == at::kDouble) {
        EXPECT_TRUE(same_edges(found.edges, expected.edges)) << added;
      }
      // In fp32 the scores are rounded to 3e-5: of 480 draws one in a hundred runs might go the other way,
      // and takes the rest of its walk along.
      EXPECT_GE(found.edges.contained_in(expected.edges).sum().item<int64_t>(),
                expected.edges.edge_count() - 3)
          << added;
      EXPECT_TRUE(at::allclose(found.policy->log_prob, expected.policy->log_prob, tolerance, 1e-9)) << added;
      EXPECT_TRUE(at::allclose(found.policy->entropy, expected.policy->entropy, tolerance, 1e-9)) << added;
    }
  }
}

TEST(FusedWalk, ReadsKeysBeforeTheQueries) {
  SacEdgesOptions options = sac_options(1, SacWalk::kRooted, 3);
  EdgeRequest request = sac_request(2, 1, 23);
  request.key_tokens = request.tokens;
  request.tokens = request.tokens.narrow(1, 10, 13);
  request.query = request.query.narrow(2, 10, 13);
  request.query_offset = 10;
  for (const bool causal : {false, true}) {
    request.is_causal = causal;
    options.fused = true;
    const EdgeChoice fused = sac_predictor(options)->choose(request);
    options.fused = false;
    const EdgeChoice plain = sac_predictor(options)->choose(request);
    EXPECT_TRUE(same_edges(fused.edges, plain.edges));
    EXPECT_TRUE(at::allclose(fused.policy->log_prob, plain.policy->log_prob));
  }
}

}  // namespace
}  // namespace edgewise
