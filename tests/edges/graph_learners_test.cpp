// Learned edges beside an input graph: their number, and the pairs that they may be.
#include <edgewise/edges/graph_edges.h>
#include <edgewise/edges/indexer_edges.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sac_edges.h>
#include <edgewise/edges/sbm_edges.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/message_of.h"
#include "kit/small_graph.h"

namespace edgewise {
namespace {

using testing::HasSubstr;

constexpr int64_t kNodes = 60, kLearnerHeads = 2, kLearnerDim = 8;

// 60 nodes in a ring, with a few chords.
at::Tensor ring_mask() {
  at::Tensor mask = torch::eye(kNodes, at::kBool);
  for (int64_t node = 0; node < kNodes; ++node)
    for (const int64_t other : {(node + 1) % kNodes, node % 7 == 0 ? (node + 20) % kNodes : node})
      mask[node][other] = mask[other][node] = true;
  return mask;
}

EdgeRequest ring_request(uint64_t step = 0) {
  torch::manual_seed(3);
  const at::Tensor nodes = torch::randn({1, kLearnerHeads, kNodes, kLearnerDim});
  EdgeRequest request{nodes, nodes, std::nullopt, /*is_causal=*/false, {.seed = 4, .step = step}};
  const EdgeSet edges = EdgeSet::from_mask(ring_mask().expand({1, 1, kNodes, kNodes}));
  request.relations = EdgeRelations{edges, torch::ones({edges.edge_count()}, at::kLong)};
  return request;
}

// Within two steps and no neighbour: [N, N] bool.
at::Tensor two_steps() {
  const at::Tensor one = ring_mask().to(at::kFloat);
  return torch::mm(one, one).gt(0) & ring_mask().logical_not();
}

// Memberships far from those at the start.
SbmEdges spread_sbm(const SbmEdgesOptions& options) {
  torch::manual_seed(5);
  SbmEdges sbm(options);
  torch::NoGradGuard no_grad;
  sbm->clusters.mul_(6);
  return sbm;
}

// p_ij of all pairs: [H, N, N].
at::Tensor all_probabilities(const EdgeLearner& learner) {
  return torch::matmul(learner.query_membership, learner.key_side.transpose(2, 3)).squeeze(0);
}

TEST(SbmBesideAGraph, ExpectsAsManyEdgesAsAreAskedFor) {
  for (const bool near : {false, true}) {
    SbmEdgesOptions options(kLearnerHeads, kLearnerDim);
    const double wanted = near ? 0.5 : 1.5;  // of about four candidates, or of all
    options.clusters = 4, options.edges_per_row = wanted;
    if (near) options.candidates = std::make_shared<BeyondGraph>(2);
    SbmEdges sbm = spread_sbm(options);
    const at::Tensor open = near ? two_steps() : ring_mask().logical_not();
    double drawn = 0;
    constexpr int kSteps = 200;
    for (uint64_t step = 0; step < kSteps; ++step) {
      const EdgeChoice choice = sbm->choose(ring_request(step));
      const at::Tensor p = all_probabilities(*choice.learner);
      ASSERT_LT(p.max().item<double>(), 1) << "else fewer are drawn";
      for (int64_t head = 0; head < kLearnerHeads; ++head)
        EXPECT_NEAR(p[head].masked_select(open).sum().item<double>(), wanted * kNodes, 1e-3);
      drawn += (choice.edges.to_mask() & open).sum().item<double>();
      if (near) {
        EXPECT_FALSE((choice.edges.to_mask() & open.logical_not()).any().item<bool>());
      }
    }
    const double mean = drawn / (kSteps * kLearnerHeads),
                 most = wanted * kNodes;  // whose variance is below it
    EXPECT_NEAR(mean, most, 5 * std::sqrt(most / (kSteps * kLearnerHeads))) << near;
  }
}

// Whatever moves the parameters, the number stays: its gradient is 0.
TEST(SbmBesideAGraph, GradientsDoNotChangeTheNumber) {
  SbmEdgesOptions options(kLearnerHeads, kLearnerDim);
  options.clusters = 4, options.edges_per_row = 2;
  SbmEdges sbm = spread_sbm(options);
  const EdgeChoice choice = sbm->choose(ring_request());
  const at::Tensor p = all_probabilities(*choice.learner), open = ring_mask().logical_not();
  const auto sum = (p * open).sum(), one = p[0][3][9];
  const at::Tensor of_sum = torch::autograd::grad({sum}, {sbm->clusters}, {}, true)[0],
                   of_one = torch::autograd::grad({one}, {sbm->clusters}, {}, true)[0];
  EXPECT_GT(of_one.abs().max().item<double>(), 1e-5);
  EXPECT_LT(of_sum.abs().max().item<double>(), 1e-3 * of_one.abs().max().item<double>() * kNodes);
}

TEST(SbmBesideAGraph, ProbesAreCandidatesThatWereNotDrawn) {
  SbmEdgesOptions options(kLearnerHeads, kLearnerDim);
  options.clusters = 4, options.edges_per_row = 1, options.candidates = std::make_shared<BeyondGraph>(2);
  options.probes_per_row = 2;
  SbmEdges sbm = spread_sbm(options);
  const at::Tensor open = two_steps();
  double probes = 0, absent = 0;
  for (uint64_t step = 0; step < 100; ++step) {
    const EdgeChoice choice = sbm->choose(ring_request(step));
    const at::Tensor asked = choice.learner->probes->to_mask(), drawn = choice.edges.to_mask();
    EXPECT_FALSE((asked & (drawn | open.logical_not())).any().item<bool>());
    probes += asked.sum().item<double>(), absent += (open & drawn.logical_not()).sum().item<double>();
  }
  const double rate = 2.0 * kNodes / open.sum().item<double>();
  EXPECT_NEAR(probes / absent, rate, 5 * std::sqrt(rate / absent));
}

TEST(SbmBesideAGraph, OptionsThatDoNotFitAreErrors) {
  SbmEdgesOptions options(kLearnerHeads, kLearnerDim, SbmPreset::kPaper);
  options.edges_per_row = 1;
  EXPECT_THAT(kit::message_of([&] { SbmEdges{options}; }), HasSubstr("expected exploration = 0"));
  SbmEdgesOptions squares(kLearnerHeads, kLearnerDim, SbmPreset::kEdgewise, 16);
  squares.edges_per_row = 1;
  EXPECT_THAT(kit::message_of([&] { SbmEdges{squares}; }), HasSubstr("expected unit 1"));
  EXPECT_THAT(kit::message_of([] { BeyondGraph{1}; }), HasSubstr("expected hops of at least 2"));
}

TEST(BeyondGraph, AreThePairsWithinSoManySteps) {
  const at::Tensor one = ring_mask().to(at::kFloat), two = torch::mm(one, one), three = torch::mm(two, one);
  for (const auto& [hops, reached] : {std::pair(2, two), {3, three}, {0, torch::ones_like(one)}}) {
    BeyondGraph source(hops);
    const at::Tensor mask = source.choose(ring_request()).edges.to_mask();
    EXPECT_TRUE(at::equal(mask, (reached.gt(0) & ring_mask().logical_not()).expand_as(mask))) << hops;
  }
}

// As many as are asked for, or all there are, and nothing that the graph has.
TEST(PoliciesBesideAGraph, ChooseAmongTheCandidates) {
  IndexerEdgesOptions indexer(kLearnerHeads, kLearnerHeads * kLearnerDim);
  indexer.alpha = 2, indexer.candidates = std::make_shared<BeyondGraph>(2);
  SacEdgesOptions sac(kLearnerHeads, kLearnerHeads * kLearnerDim);
  sac.alpha = 2, sac.distance = DistanceEncoding::kNone, sac.candidates = std::make_shared<BeyondGraph>(2);
  const at::Tensor open = two_steps();
  const at::Tensor wanted = open.sum(1).clamp_max(2);
  IndexerEdges by_score(indexer);
  SacEdges by_walk(sac);
  for (EdgeSource* const source : std::initializer_list<EdgeSource*>{by_score.get(), by_walk.get()})
    for (const bool training : {true, false}) {
      source->train(training);
      const EdgeChoice choice = source->choose(ring_request());
      const at::Tensor mask = choice.edges.to_mask();
      EXPECT_FALSE((mask & open.logical_not()).any().item<bool>());
      EXPECT_TRUE(at::equal(mask.sum(3), wanted.expand({1, kLearnerHeads, kNodes})));
      if (training && choice.learner->probes) {
        EXPECT_FALSE((choice.learner->probes->to_mask() & open.logical_not()).any().item<bool>());
      }
    }
}

}  // namespace
}  // namespace edgewise
