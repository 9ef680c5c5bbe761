// The credit of an edge where the loss is not linear in the output: cross-entropy, against the exact effect
// of the edge by computing attention and loss again without (or with) it.
//
// Credit is first-order: G = <dL/do, o_with - o_without>, with the slope at the output o that was computed.
// Cross-entropy is convex in the logits o, with curvature between 0 and 1/2. So the bias has a sign and a
// bound, and the tests state both:
//   present edges   0 <= G - (L_with - L_without) <= |o_with - o_without|^2 / 4
//   absent edges    0 <= (L_with - L_without) - G <= |o_with - o_without|^2 / 4
#include <edgewise/edges/sac_edges.h>
#include <edgewise/ops/functional.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/random_inputs.h"

namespace edgewise {
namespace {

using functional::Backend;

constexpr int64_t kQueries = 3, kKeys = 4, kClasses = 5;

// Every query's output [Dv = classes] is the logits of its class.
struct Classified {
  at::Tensor query = kit::randn({1, 1, kQueries, 3}, 60, at::kDouble),
             key = kit::randn({1, 1, kKeys, 3}, 61, at::kDouble),
             value = kit::randn({1, 1, kKeys, kClasses}, 62, at::kDouble) * 2,
             classes = torch::tensor({0, 3, 1}, at::kLong);

  at::Tensor loss_of(const at::Tensor& output) const {
    return at::cross_entropy_loss(output[0][0], classes, {}, at::Reduction::Sum);
  }
  at::Tensor output(const at::Tensor& mask) const {
    return functional::edge_attention(query, key, value, EdgeSet::from_mask(mask));
  }
};

struct Effect {
  double loss, output_squared;  // L_with - L_without, |o_with - o_without|^2
};
Effect exact_effect(const Classified& problem, const at::Tensor& mask, int64_t i, int64_t j) {
  at::Tensor with = mask.clone(), without = mask.clone();
  with[0][0][i][j] = true;
  without[0][0][i][j] = false;
  const at::Tensor above = problem.output(with), below = problem.output(without);
  return {(problem.loss_of(above) - problem.loss_of(below)).item<double>(),
          (above - below).square().sum().item<double>()};
}

// Counts how far the credit of all pairs is off, and checks sign and bound. credit: [L, S], 0 where there is
// none.
struct Bias {
  double largest = 0, largest_effect = 0;

  void check(const Classified& problem, const at::Tensor& mask, const at::Tensor& credit, bool absent_too) {
    for (int64_t i = 0; i < kQueries; ++i)
      for (int64_t j = 0; j < kKeys; ++j) {
        const bool present = mask[0][0][i][j].item<bool>();
        if (!present && !absent_too) continue;
        const Effect exact = exact_effect(problem, mask, i, j);
        const double given = credit[i][j].item<double>(),
                     bias = present ? given - exact.loss : exact.loss - given;
        EXPECT_GE(bias, -1e-10) << i << " " << j << (present ? " present" : " absent");
        EXPECT_LE(bias, exact.output_squared / 4 + 1e-10) << i << " " << j;
        largest = std::max(largest, bias);
        largest_effect = std::max(largest_effect, std::abs(exact.loss));
      }
  }
};

class NonlinearCredit : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(All, NonlinearCredit,
                         ::testing::Values(Backend::kKernel, Backend::kReference, Backend::kDense),
                         [](const auto& given) {
                           return std::string(given.param == Backend::kKernel      ? "kernel"
                                              : given.param == Backend::kReference ? "edge_list"
                                                                                   : "dense");
                         });

TEST_P(NonlinearCredit, OfMembershipsIsBiasedAsStated) {
  const Classified problem;
  Bias bias;
  for (const int64_t seed : {70, 71, 72, 73}) {
    const at::Tensor mask = kit::random_mask({1, 1, kQueries, kKeys}, 0.5, seed);
    EdgeLearner rule;
    rule.rule = CreditRule::kLeaveOneOut;
    rule.probes = EdgeSet::from_mask(~mask);
    rule.probe_rates = {1};
    // With an identity on the key side the gradient of the memberships is the credit, pair by pair.
    rule.query_membership = kit::rand({1, 1, kQueries, kKeys}, seed, at::kDouble).requires_grad_();
    rule.key_side = at::eye(kKeys, at::kDouble).view({1, 1, kKeys, kKeys});
    functional::EdgeAttentionOptions options;
    options.backend = GetParam();
    const auto result = functional::edge_attention(problem.query, problem.key, problem.value,
                                                   EdgeSet::from_mask(mask), rule, options);
    problem.loss_of(result.output).backward();
    bias.check(problem, mask, rule.query_membership.grad()[0][0], true);
  }
  EXPECT_GT(bias.largest, 0.05 * bias.largest_effect) << "the loss is not linear here";
}

TEST(NonlinearEffect, OfAPolicyIsBiasedAsStated) {
  const Classified problem;
  Bias bias;
  for (const int64_t seed : {80, 81, 82, 83}) {
    const at::Tensor mask = kit::random_mask({1, 1, kQueries, kKeys}, 0.6, seed);
    const EdgeSet edges = EdgeSet::from_mask(mask);
    EdgeLearner learner;
    learner.rule = CreditRule::kLeaveOneOut;
    learner.values = at::zeros({edges.edge_count()}, at::kDouble).requires_grad_();
    problem
        .loss_of(functional::edge_attention(problem.query, problem.key, problem.value, edges, learner).output)
        .backward();
    at::Tensor credit = at::zeros({kQueries, kKeys}, at::kDouble);
    credit.masked_scatter_(mask[0][0], learner.values.grad());
    bias.check(problem, mask, credit, false);
  }
  EXPECT_GT(bias.largest, 0.05 * bias.largest_effect) << "the loss is not linear here";
}

}  // namespace
}  // namespace edgewise
