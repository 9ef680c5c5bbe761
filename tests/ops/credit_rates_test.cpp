// What weighs the credit of probes and of Poisson edges: each item's own rate, and the law's slope, which
// ends at p = 1.
#include <edgewise/ops/functional.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/random_inputs.h"

namespace edgewise {
namespace {

// The gradient of the memberships [B, 1, 4, 5], which with an identity on the key side is the credit of each
// pair.
at::Tensor credit_of(const at::Tensor& mask, const at::Tensor& probes, const std::vector<double>& rates,
                     EdgeLaw law, const at::Tensor& p) {
  const int64_t batch = mask.size(0);
  EdgeLearner rule;
  rule.poisson_slope = law == EdgeLaw::kPoisson;
  rule.probes = EdgeSet::from_mask(probes);
  rule.probe_rates = rates;
  rule.query_membership = p.clone().requires_grad_();
  rule.key_side = at::eye(5, at::kDouble).expand({batch, 1, 5, 5}).contiguous();
  const auto inputs = [&](int64_t tokens, int64_t seed) {
    return kit::randn({1, 1, tokens, 3}, seed, at::kDouble).expand({batch, 1, tokens, 3}).contiguous();
  };
  const auto result = functional::edge_attention(inputs(4, 1), inputs(5, 2), inputs(5, 3),
                                                 EdgeSet::from_mask(mask), rule, {});
  (result.output * inputs(4, 4)).sum().backward();
  return rule.query_membership.grad();
}

// Two items alike in everything but their rates: a quarter of the rate is four times the credit of a probe.
TEST(CreditRates, EveryItemHasItsOwn) {
  const at::Tensor mask = kit::random_mask({1, 1, 4, 5}, 0.4, 5).expand({2, 1, 4, 5}).contiguous(),
                   p = at::full({2, 1, 4, 5}, 0.5, at::kDouble);
  const at::Tensor credit = credit_of(mask, ~mask, {0.8, 0.2}, EdgeLaw::kBernoulli, p);
  const at::Tensor probes = ~mask[0];
  EXPECT_GT(credit[0].masked_select(probes).abs().min().item<double>(), 1e-6);
  EXPECT_TRUE(at::allclose(credit[1].masked_select(probes), 4 * credit[0].masked_select(probes), 1e-12));
  EXPECT_TRUE(at::allclose(credit[1].masked_select(mask[0]), credit[0].masked_select(mask[0]), 1e-12));
}

// P = 1 - e^-p below p = 1, where the law is cut off: there an edge is certain and nothing can make it more
// so.
TEST(CreditRates, PoissonEdgesThatAreCertainGetNone) {
  const at::Tensor mask = kit::random_mask({1, 1, 4, 5}, 0.5, 6);
  at::Tensor p = kit::rand({1, 1, 4, 5}, 7, at::kDouble) * 2;  // half of them above 1
  const at::Tensor poisson = credit_of(mask, ~mask, {0.5}, EdgeLaw::kPoisson, p),
                   bernoulli = credit_of(mask, ~mask, {0.5}, EdgeLaw::kBernoulli, p);
  EXPECT_GT((p >= 1).sum().item<int64_t>(), 5);
  EXPECT_GT(bernoulli.masked_select(p >= 1).abs().max().item<double>(), 1e-3);
  EXPECT_TRUE(at::allclose(poisson, bernoulli * at::where(p < 1, (-p).exp(), at::zeros_like(p)), 1e-12));
}

}  // namespace
}  // namespace edgewise
