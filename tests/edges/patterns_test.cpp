// Patterns and unions against masks written out.
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/ops/functional.h>

#include <c10/core/InferenceMode.h>

#include <gtest/gtest.h>

#include "kit/random_inputs.h"

namespace edgewise {
namespace {

EdgeRequest request(int64_t queries, int64_t keys) {
  EdgeRequest result;
  result.query = kit::randn({2, 2, queries, 8}, 1);
  result.key = kit::randn({2, 2, keys, 8}, 2);
  return result;
}

at::Tensor band(int64_t queries, int64_t keys, int64_t width) {
  const at::Tensor distance = (torch::arange(queries).unsqueeze(1) - torch::arange(keys).unsqueeze(0)).abs();
  return (distance <= width).expand({2, 2, queries, keys});
}

TEST(Patterns, WindowFullAndGiven) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{7, 7}, {3, 9}, {9, 3}, {1, 1}})
    for (const int64_t width : {0, 1, 4, 100})
      EXPECT_TRUE(at::equal(WindowEdges(width).choose(request(queries, keys)).edges.to_mask(),
                            band(queries, keys, width)));
  EdgeRequest masked = request(6, 6);
  masked.key_mask = kit::rand({2, 6}, 3) < 0.6;
  const at::Tensor valid = masked.key_mask->view({2, 1, 1, 6}) & masked.key_mask->view({2, 1, 6, 1});
  EXPECT_TRUE(at::equal(FullEdges().choose(masked).edges.to_mask(), valid.expand({2, 2, 6, 6})));
  masked.is_causal = true;
  EXPECT_TRUE(at::equal(WindowEdges(2).choose(masked).edges.to_mask(),
                        (band(6, 6, 2) & valid & at::ones({6, 6}).tril().to(at::kBool))));
  const EdgeSet given = EdgeSet::from_mask(kit::random_mask({2, 2, 6, 6}, 0.5, 4));
  EXPECT_TRUE(at::equal(GivenEdges(given).choose(request(6, 6)).edges.to_mask(), given.to_mask()));
  EXPECT_THROW(GivenEdges(given).choose(request(6, 7)), c10::Error);
  EXPECT_THROW(WindowEdges(-1), c10::Error);
}

TEST(Patterns, WindowKeptFromInferenceModeDoesNotMeetTraining) {
  WindowEdges window(2);
  const EdgeRequest ask = request(12, 12);
  const auto attend = [&](const at::Tensor& query) {
    return functional::edge_attention(query, ask.key, ask.key, window.choose(ask).edges);
  };
  at::Tensor inferred;
  {
    const c10::InferenceMode guard;
    inferred = attend(ask.query);
  }
  const at::Tensor query = ask.query.clone().requires_grad_();
  const at::Tensor trained = attend(query);
  trained.sum().backward();  // columns are made of the edges
  EXPECT_TRUE(at::equal(trained.detach(), inferred));
  EXPECT_TRUE(query.grad().defined());
}

TEST(Patterns, UnionGivesTheLearnerNoCreditForFixedEdges) {
  SbmEdgesOptions options(2, 8);
  options.probe_rate = 0.5;
  auto sbm = std::make_shared<SbmEdgesImpl>(options);
  auto window = std::make_shared<WindowEdges>(1);
  UnionEdges both({window, sbm});
  const EdgeRequest ask = request(12, 12);
  const EdgeChoice alone = sbm->choose(ask), united = both.choose(ask);
  const at::Tensor fixed = band(12, 12, 1), mask = united.edges.to_mask();
  EXPECT_TRUE(at::equal(mask, fixed | alone.edges.to_mask()));
  ASSERT_TRUE(united.learner && united.learner->fixed && united.learner->probes);
  EXPECT_TRUE(at::equal(united.edges.minus(*united.learner->fixed).to_mask(), mask & ~fixed));
  EXPECT_FALSE((united.learner->probes->to_mask() & fixed).any().item<bool>());
  EXPECT_EQ(both.parameters().size(), sbm->parameters().size());  // the union owns its sources
  EXPECT_THROW(UnionEdges({sbm, std::make_shared<SbmEdgesImpl>(options)}).choose(ask), c10::Error);
  EXPECT_THROW(UnionEdges({}), c10::Error);
}

}  // namespace
}  // namespace edgewise
