// The numbers that attention's backward pass gives edges and probes, against attention computed again with
// and without them.
#include <edgewise/ops/functional.h>

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

  at::Tensor numbers(CreditRule rule) const {
    EdgeLearner learner;
    learner.values = at::zeros({edges.edge_count()}, at::kDouble).requires_grad_();
    learner.rule = rule;
    const auto [output, density] = functional::edge_attention(q, k, v, edges, learner);
    EXPECT_FALSE(density.defined());
    EXPECT_TRUE(at::allclose(output, functional::edge_attention(q, k, v, edges), 1e-12, 1e-12));
    (output * g).sum().backward();
    return learner.values.grad();
  }
  double loss(const at::Tensor& kept) const {
    return (kit::plain_attention(q, k, v, kept, 0.5) * g).sum().item<double>();
  }
};

TEST(EdgeLearner, LogitIsTheGradientOfTheEdgesLogit) {
  const Setting s;
  const at::Tensor bias = at::zeros({2, 2, 6, 7}, at::kDouble).requires_grad_();
  const at::Tensor scores = at::matmul(s.q, s.k.transpose(2, 3)) * 0.5 + bias;
  const at::Tensor weights = scores.masked_fill(~s.mask, -INFINITY).softmax(-1).nan_to_num(0);
  (at::matmul(weights, s.v) * s.g).sum().backward();
  EXPECT_TRUE(at::allclose(s.numbers(CreditRule::kLogit), bias.grad().masked_select(s.mask), 1e-10, 1e-12));
}

TEST(EdgeLearner, LeaveOneOutIsADifferenceOfLosses) {
  const Setting s;
  const at::Tensor one = s.numbers(CreditRule::kLeaveOneOut), places = s.mask.nonzero();
  const double with = s.loss(s.mask);
  for (int64_t e = 0; e < s.edges.edge_count(); ++e) {
    at::Tensor kept = s.mask.clone();
    kept[places[e][0].item<int64_t>()][places[e][1].item<int64_t>()][places[e][2].item<int64_t>()]
        [places[e][3].item<int64_t>()]
            .fill_(false);
    EXPECT_NEAR(one[e].item<double>(), with - s.loss(kept), 1e-10);
  }
}

// To first order in the loss of a row, a probe's number is what adding it would do, divided by its rate.
TEST(EdgeLearner, ProbesTellWhatAddingThemWouldDo) {
  const Setting s;
  EdgeLearner learner;
  learner.values = at::zeros({s.edges.edge_count()}, at::kDouble).requires_grad_();
  learner.probes = EdgeSet::from_mask(s.mask.logical_not());
  learner.probe_rates = {0.5, 0.25};
  learner.probe_values = at::zeros({learner.probes->edge_count()}, at::kDouble).requires_grad_();
  (functional::edge_attention(s.q, s.k, s.v, s.edges, learner).output * s.g).sum().backward();
  const at::Tensor places = s.mask.logical_not().nonzero();
  const double without = s.loss(s.mask);
  for (int64_t e = 0; e < learner.probes->edge_count(); ++e) {
    at::Tensor more = s.mask.clone();
    const int64_t item = places[e][0].item<int64_t>();
    more[item][places[e][1].item<int64_t>()][places[e][2].item<int64_t>()][places[e][3].item<int64_t>()]
        .fill_(true);
    EXPECT_NEAR(learner.probe_values.grad()[e].item<double>(),
                (s.loss(more) - without) / learner.probe_rates[static_cast<size_t>(item)], 1e-9);
  }
}

// All pairs, float32: where attention itself would go to a dense route that knows no edges.
TEST(EdgeLearner, CompleteGraphsHaveNumbersToo) {
  const at::Tensor q = kit::randn({1, 2, 64, 16}, 1, at::kFloat),
                   k = kit::randn({1, 2, 64, 16}, 2, at::kFloat),
                   v = kit::randn({1, 2, 64, 16}, 3, at::kFloat);
  const EdgeSet edges = EdgeSet::from_mask(at::ones({1, 2, 64, 64}, at::kBool));
  const auto numbers = [&](at::ScalarType dtype) {
    EdgeLearner learner;
    learner.values = at::zeros({edges.edge_count()}, dtype).requires_grad_();
    functional::edge_attention(q.to(dtype), k.to(dtype), v.to(dtype), edges, learner)
        .output.square()
        .sum()
        .backward();
    return learner.values.grad();
  };
  EXPECT_TRUE(at::allclose(numbers(at::kFloat).to(at::kDouble), numbers(at::kDouble), 1e-4, 1e-5));
}

TEST(EdgeLearner, RefusesWhatDoesNotFit) {
  const Setting s;
  const auto attend = [&](const EdgeLearner& learner) {
    functional::edge_attention(s.q, s.k, s.v, s.edges, learner);
  };
  EdgeLearner learner;
  EXPECT_THROW(attend(learner), c10::ValueError) << "neither values nor memberships";
  learner.values = at::zeros({3}, at::kDouble);
  EXPECT_THROW(attend(learner), c10::ValueError);
  learner.values = at::zeros({s.edges.edge_count()}, at::kDouble);
  attend(learner);
  learner.query_membership = at::zeros({2, 2, 6, 1}, at::kDouble);
  learner.key_side = at::zeros({2, 2, 7, 1}, at::kDouble);
  EXPECT_THROW(attend(learner), c10::ValueError) << "both";
  learner.query_membership = learner.key_side = at::Tensor();
  learner.probe_values = at::zeros({1}, at::kDouble);
  EXPECT_THROW(attend(learner), c10::ValueError) << "no probes";
}

}  // namespace
}  // namespace edgewise
