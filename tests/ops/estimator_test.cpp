// The estimators: each against its formula, and the counterfactual one against the true derivative of the
// expected loss.
#include <edgewise/ops/functional.h>
#include <edgewise/ops/sample.h>

#include <gtest/gtest.h>

#include "kit/random_inputs.h"

namespace edgewise {
namespace {

using functional::Backend;
using functional::edge_attention;
using functional::EdgeAttentionOptions;

// With key_side = identity, p_ij = query_membership_ij, so the gradient of query_membership *is* G = dL/dp,
// pair by pair.
struct Head {
  at::Tensor query, key, value;  // [1, 1, L, D], [1, 1, S, D], [1, 1, S, Dv]
  at::Tensor loss_weight;        // the loss is sum(loss_weight * output): linear in the output
  at::Tensor probability;        // [L, S]

  Head(int64_t queries, int64_t keys, int64_t seed, double logit_size = 1) {
    query = kit::randn({1, 1, queries, 3}, seed, at::kDouble) * logit_size;
    key = kit::randn({1, 1, keys, 3}, seed + 1, at::kDouble);
    value = kit::randn({1, 1, keys, 2}, seed + 2, at::kDouble);
    loss_weight = kit::randn({1, 1, queries, 2}, seed + 3, at::kDouble);
    probability = kit::rand({queries, keys}, seed + 4, at::kDouble);
  }
  double loss(const at::Tensor& mask) const {
    return (edge_attention(query, key, value, EdgeSet::from_mask(mask)) * loss_weight).sum().item<double>();
  }
  // G for one mask.
  at::Tensor credit(const at::Tensor& mask, EdgeLearner learner, Backend backend, const at::Tensor& p) const {
    learner.query_membership = p.view({1, 1, p.size(0), p.size(1)}).detach().clone().requires_grad_();
    learner.key_side = at::eye(p.size(1), at::kDouble).view({1, 1, p.size(1), p.size(1)});
    EdgeAttentionOptions options;
    options.backend = backend;
    const auto result = edge_attention(query, key, value, EdgeSet::from_mask(mask), learner, options);
    (result.output * loss_weight).sum().backward();
    return learner.query_membership.grad()[0][0];
  }
};

// Mask number n of an L x S head: [1, 1, L, S] bool.
at::Tensor mask_number(int64_t n, int64_t queries, int64_t keys) {
  at::Tensor mask = at::zeros({queries * keys}, at::kBool);
  for (int64_t bit = 0; bit < queries * keys; ++bit) mask[bit] = (n >> bit & 1) != 0;
  return mask.view({1, 1, queries, keys});
}

double mask_probability(const at::Tensor& mask, const at::Tensor& probability) {
  return at::where(mask[0][0], probability, 1 - probability).prod().item<double>();
}

// dE[L]/dP_ij = E[L | edge] - E[L | no edge], by enumeration.
at::Tensor true_gradient(const Head& head, const at::Tensor& probability) {
  const int64_t queries = probability.size(0), keys = probability.size(1), pairs = queries * keys;
  at::Tensor gradient = at::zeros({pairs}, at::kDouble);
  const at::Tensor flat = probability.reshape(-1);
  for (int64_t n = 0; n < int64_t{1} << pairs; ++n) {
    const at::Tensor mask = mask_number(n, queries, keys);
    const double loss = head.loss(mask), weight = mask_probability(mask, probability);
    for (int64_t e = 0; e < pairs; ++e) {
      const double p = flat[e].item<double>();
      gradient[e] += (n >> e & 1) ? loss * weight / p : -loss * weight / (1 - p);
    }
  }
  return gradient.view({queries, keys});
}

class Estimators : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(All, Estimators,
                         ::testing::Values(Backend::kKernel, Backend::kReference, Backend::kDense),
                         [](const auto& given) {
                           return std::string(given.param == Backend::kKernel      ? "kernel"
                                              : given.param == Backend::kReference ? "edge_list"
                                                                                   : "dense");
                         });

TEST_P(Estimators, MatchTheirFormulas) {
  const Head head(5, 6, 1);
  const at::Tensor mask = kit::random_mask({1, 1, 5, 6}, 0.5, 9);
  const at::Tensor s = at::matmul(head.query, head.key.transpose(2, 3)) / std::sqrt(3.0);
  const at::Tensor a = s.masked_fill(~mask, -INFINITY).softmax(-1).nan_to_num(0);
  const at::Tensor u = at::matmul(head.loss_weight, head.value.transpose(2, 3));
  const at::Tensor ubar = (a * u).sum(-1, true);
  const at::Tensor logit = (a * (u - ubar))[0][0], paper = (a * (u - ubar) * s)[0][0];

  EdgeLearner learner;
  learner.rule = CreditRule::kLogit;
  EXPECT_TRUE(at::allclose(head.credit(mask, learner, GetParam(), head.probability), logit, 1e-10, 1e-12));
  learner.gradient_clip = 0.05;
  EXPECT_TRUE(at::allclose(head.credit(mask, learner, GetParam(), head.probability), logit.clamp(-0.05, 0.05),
                           1e-10, 1e-12));
  learner.gradient_clip = 0;
  learner.rule = CreditRule::kPaper;
  EXPECT_TRUE(at::allclose(head.credit(mask, learner, GetParam(), head.probability), paper, 1e-10, 1e-12));
  learner.rule = credit_rule(Estimator::kCounterfactual, PresentForm::kSoftmax);  // no probes: the logit rule
  EXPECT_TRUE(at::allclose(head.credit(mask, learner, GetParam(), head.probability), logit, 1e-10, 1e-12));
  // Edges the learner did not decide teach it nothing.
  const EdgeSet edges = EdgeSet::from_mask(mask);
  const at::Tensor decided = torch::arange(edges.edge_count()).remainder(2) == 0;
  learner.fixed = edges.kept(decided.logical_not());
  at::Tensor expected = at::zeros_like(logit);
  expected.masked_scatter_(mask[0][0], logit.masked_select(mask[0][0]) * decided.to(at::kDouble));
  EXPECT_TRUE(at::allclose(head.credit(mask, learner, GetParam(), head.probability), expected, 1e-10, 1e-12));
}

TEST_P(Estimators, LeaveOneOutWithProbesIsExactForEveryMask) {
  // For a loss linear in the output, G is the effect of switching the edge, whatever else is there: rows with
  // no edge, rows with an only edge, and weights so uneven that 1 - a underflows.
  for (const double logit_size : {1.0, 300.0}) {
    const Head head(2, 3, 3, logit_size);
    for (int64_t n = 0; n < 64; ++n) {
      const at::Tensor mask = mask_number(n, 2, 3);
      EdgeLearner learner;
      learner.rule = CreditRule::kLeaveOneOut;
      learner.probes = EdgeSet::from_mask(~mask);
      learner.probe_rates = {1};
      const at::Tensor credit = head.credit(mask, learner, GetParam(), head.probability);
      for (int64_t e = 0; e < 6; ++e) {
        const double with = head.loss(mask_number(n | int64_t{1} << e, 2, 3));
        const double without = head.loss(mask_number(n & ~(int64_t{1} << e), 2, 3));
        EXPECT_NEAR(credit.reshape(-1)[e].item<double>(), with - without, 1e-9)
            << "mask " << n << " pair " << e;
      }
    }
  }
}

TEST_P(Estimators, LeaveOneOutIsUnbiasedByEnumeration) {
  const Head head(2, 3, 20);
  for (const EdgeLaw law : {EdgeLaw::kBernoulli, EdgeLaw::kPoisson}) {
    const at::Tensor p = head.probability * 0.9 + 0.05;
    const at::Tensor probability = law == EdgeLaw::kBernoulli ? p : 1 - (-p).exp();
    const at::Tensor slope = law == EdgeLaw::kBernoulli ? at::ones_like(p) : (-p).exp();  // dP/dp
    at::Tensor mean = at::zeros_like(p);
    for (int64_t n = 0; n < 64; ++n) {
      const at::Tensor mask = mask_number(n, 2, 3);
      EdgeLearner learner;
      learner.poisson_slope = law == EdgeLaw::kPoisson;
      learner.rule = CreditRule::kLeaveOneOut;
      learner.probes = EdgeSet::from_mask(~mask);
      learner.probe_rates = {1};
      mean += mask_probability(mask, probability) * head.credit(mask, learner, GetParam(), p);
    }
    EXPECT_TRUE(at::allclose(mean, true_gradient(head, probability) * slope, 1e-9, 1e-10));
  }
}

TEST_P(Estimators, MeanOverProbeDrawsIsTheDenseOracle) {
  const Head head(6, 8, 30);
  const at::Tensor mask = kit::random_mask({1, 1, 6, 8}, 0.4, 31);
  const EdgeSet edges = EdgeSet::from_mask(mask);
  EdgeLearner learner;
  learner.probes = EdgeSet::from_mask(~mask);
  learner.probe_rates = {1};
  const at::Tensor oracle = head.credit(mask, learner, GetParam(), head.probability);
  // A probe enters with probability r and weight 1 / r: standard error |oracle| sqrt((1 - r) / (r draws)).
  // Bound: 5 of those.
  const int64_t draws = 600;
  const double rate = 0.25;
  for (const int64_t unit : {1, 16}) {
    at::Tensor mean = at::zeros_like(oracle);
    for (int64_t draw = 0; draw < draws; ++draw) {
      SampleOptions sampling;
      sampling.probe_unit = unit;
      sampling.random.step = static_cast<uint64_t>(draw);
      learner.probes = sample_probe_edges(edges, {rate}, sampling);
      learner.probe_rates = {rate};
      mean += head.credit(mask, learner, GetParam(), head.probability) / static_cast<double>(draws);
    }
    const at::Tensor error =
        at::where(mask[0][0], at::zeros_like(oracle),
                  oracle.abs() * std::sqrt((1 - rate) / (rate * static_cast<double>(draws))));
    EXPECT_TRUE(((mean - oracle).abs() <= 5 * error + 1e-12).all().item<bool>()) << unit;
  }
  EXPECT_GT((~mask[0][0] & (oracle.abs() > 1e-6)).sum().item<int64_t>(),
            10);  // absent edges really get credit
}

// Probes in units: the mean over all choices of squares, each weighed by its probability, is the oracle.
TEST_P(Estimators, MeanOverAllChoicesOfProbeUnitsIsTheDenseOracle) {
  const double rate = 0.3;
  const Head head(18, 21, 50);
  for (const PresentForm form : {PresentForm::kSoftmax, PresentForm::kLeaveOneOut}) {
    const at::Tensor mask = kit::random_mask({1, 1, 18, 21}, 0.2, 51);
    EdgeLearner learner;
    learner.rule = credit_rule(Estimator::kCounterfactual, form);
    learner.probes = EdgeSet::from_mask(~mask);
    learner.probe_rates = {1};
    const at::Tensor oracle = head.credit(mask, learner, GetParam(), head.probability);
    learner.probe_rates = {rate};
    const at::Tensor square = at::arange(18).div(16, "floor").view({18, 1}) * 2 +
                              at::arange(21).div(16, "floor").view({1, 21});  // 0 .. 3
    at::Tensor mean = at::zeros_like(oracle);
    for (int64_t chosen = 0; chosen < 16; ++chosen) {
      const at::Tensor inside =
          at::full_like(square, chosen).bitwise_right_shift(square).bitwise_and(1).to(at::kBool);
      double weight = 1;
      for (int64_t n = 0; n < 4; ++n) weight *= chosen >> n & 1 ? rate : 1 - rate;
      learner.probes = EdgeSet::from_mask(inside & ~mask);
      mean += weight * head.credit(mask, learner, GetParam(), head.probability);
    }
    EXPECT_TRUE(at::allclose(mean, oracle, 1e-9, 1e-11));
  }
}

TEST_P(Estimators, SampledDensityReachesTheDecidedEdges) {
  const at::Tensor mask = kit::random_mask({2, 3, 4, 5}, 0.5, 40);
  const EdgeSet edges = EdgeSet::from_mask(mask);
  EdgeLearner learner;
  learner.rule = CreditRule::kLogit;
  learner.query_membership = kit::rand({2, 3, 4, 5}, 41, at::kDouble).requires_grad_();
  learner.key_side = at::eye(5, at::kDouble).expand({2, 3, 5, 5}).contiguous();
  learner.pairs_per_head = 2 * 4 * 5;
  EdgeAttentionOptions options;
  options.backend = GetParam();
  const auto result =
      edge_attention(kit::randn({2, 3, 4, 2}, 42, at::kDouble), kit::randn({2, 3, 5, 2}, 43, at::kDouble),
                     kit::randn({2, 3, 5, 2}, 44, at::kDouble), edges, learner, options);
  EXPECT_TRUE(at::allclose(result.sampled_density, edges.density()));
  const at::Tensor weight = torch::tensor({1.0, -2.0, 3.0}, at::kDouble);  // per head
  (result.sampled_density * weight).sum().backward();
  EXPECT_TRUE(
      at::allclose(learner.query_membership.grad(), mask.to(at::kDouble) * weight.view({1, 3, 1, 1}) / 40.0));
}

}  // namespace
}  // namespace edgewise
