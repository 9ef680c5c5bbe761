// The effects that attention's backward pass reports, against attention computed again without the edges.
#include <edgewise/ops/edge_effect.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/plain_attention.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

struct Setting {
  EdgeShape shape{2, 2, 6, 7};
  at::Tensor q = kit::randn({2, 2, 6, 4}, 1, at::kDouble), k = kit::randn({2, 2, 7, 4}, 2, at::kDouble),
             v = kit::randn({2, 2, 7, 3}, 3, at::kDouble), g = kit::randn({2, 2, 6, 3}, 4, at::kDouble);
  at::Tensor mask = kit::random_mask(shape, 0.4, 5);
  EdgeSet edges = EdgeSet::from_mask(mask);

  at::Tensor effects(EffectRule rule) const {
    EdgeEffect effect;
    effect.values = at::zeros({edges.edge_count()}, at::kDouble).requires_grad_();
    effect.rule = rule;
    const at::Tensor output = functional::edge_attention(q, k, v, edges, effect);
    EXPECT_TRUE(at::allclose(output, functional::edge_attention(q, k, v, edges), 1e-12, 1e-12));
    (output * g).sum().backward();
    return effect.values.grad();
  }
  double loss(const at::Tensor& kept) const {
    return (kit::plain_attention(q, k, v, kept, 0.5) * g).sum().item<double>();
  }
};

TEST(EdgeEffect, LogitIsTheGradientOfTheEdgesLogit) {
  const Setting s;
  const at::Tensor bias = at::zeros({2, 2, 6, 7}, at::kDouble).requires_grad_();
  const at::Tensor scores = at::matmul(s.q, s.k.transpose(2, 3)) * 0.5 + bias;
  const at::Tensor weights = scores.masked_fill(~s.mask, -INFINITY).softmax(-1).nan_to_num(0);
  (at::matmul(weights, s.v) * s.g).sum().backward();
  EXPECT_TRUE(at::allclose(s.effects(EffectRule::kLogit), bias.grad().masked_select(s.mask), 1e-10, 1e-12));
}

TEST(EdgeEffect, LeaveOneOutIsADifferenceOfLosses) {
  const Setting s;
  const at::Tensor one = s.effects(EffectRule::kLeaveOneOut), places = s.mask.nonzero();
  const double with = s.loss(s.mask);
  for (int64_t e = 0; e < s.edges.edge_count(); ++e) {
    at::Tensor kept = s.mask.clone();
    kept[places[e][0].item<int64_t>()][places[e][1].item<int64_t>()][places[e][2].item<int64_t>()]
        [places[e][3].item<int64_t>()]
            .fill_(false);
    EXPECT_NEAR(one[e].item<double>(), with - s.loss(kept), 1e-10);
  }
}

// All pairs, float32: where attention itself would go to a dense route that knows no edges.
TEST(EdgeEffect, CompleteGraphsHaveEffectsToo) {
  const at::Tensor q = kit::randn({1, 2, 64, 16}, 1, at::kFloat),
                   k = kit::randn({1, 2, 64, 16}, 2, at::kFloat),
                   v = kit::randn({1, 2, 64, 16}, 3, at::kFloat);
  const EdgeSet edges = EdgeSet::from_mask(at::ones({1, 2, 64, 64}, at::kBool));
  const auto effects = [&](at::ScalarType dtype) {
    EdgeEffect effect;
    effect.values = at::zeros({edges.edge_count()}, dtype).requires_grad_();
    effect.rule = EffectRule::kLogit;
    functional::edge_attention(q.to(dtype), k.to(dtype), v.to(dtype), edges, effect)
        .square()
        .sum()
        .backward();
    return effect.values.grad();
  };
  EXPECT_TRUE(at::allclose(effects(at::kFloat).to(at::kDouble), effects(at::kDouble), 1e-4, 1e-5));
}

TEST(EdgeEffect, RefusesWhatDoesNotFit) {
  const Setting s;
  EdgeEffect effect;
  effect.values = at::zeros({3}, at::kDouble);
  EXPECT_THROW(functional::edge_attention(s.q, s.k, s.v, s.edges, effect), c10::ValueError);
}

}  // namespace
}  // namespace edgewise
