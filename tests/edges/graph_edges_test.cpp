// Edges of an input graph, and the controls beside it.
#include <edgewise/edges/graph_edges.h>
#include <edgewise/edges/patterns.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/message_of.h"
#include "kit/small_graph.h"

namespace edgewise {
namespace {

using testing::HasSubstr;

EdgeRequest request_for(const InputGraph::Parts& parts, int64_t heads = 2, uint64_t step = 0) {
  const at::Tensor nodes = torch::zeros({1, heads, 7, 3});
  EdgeRequest request{nodes, nodes, std::nullopt, /*is_causal=*/false, {.seed = 4, .step = step}};
  request.relations = parts.relations;
  request.features = &parts.features;
  return request;
}

at::Tensor graph_mask() {
  at::Tensor mask = torch::eye(7, at::kBool);
  const at::Tensor edges = kit::small_edges().to(at::kLong);
  mask.index_put_({edges.select(1, 0), edges.select(1, 1)}, torch::ones({}, at::kBool));
  return mask | mask.t();
}

TEST(GraphEdges, AreThoseOfTheGraphInEveryHead) {
  const auto graph = kit::small_input();
  const InputGraph::Parts& parts = graph->on(at::kCPU);
  GraphEdges source;
  EXPECT_TRUE(
      at::equal(source.choose(request_for(parts)).edges.to_mask(), graph_mask().expand({1, 2, 7, 7})));
  EXPECT_TRUE(
      at::equal(source.choose(request_for(parts, 1)).edges.to_mask(), graph_mask().expand({1, 1, 7, 7})));
  EdgeRequest none = request_for(parts);
  none.relations.reset();
  EXPECT_THAT(kit::message_of([&] { source.choose(none); }),
              HasSubstr("with its edges as relations; got none"));
}

TEST(GraphEdges, TrainingDropsEdgesAndNeverLoops) {
  const auto graph = kit::small_input();
  const InputGraph::Parts& parts = graph->on(at::kCPU);
  GraphEdges source(0.5);
  at::Tensor counts = torch::zeros({7, 7});
  constexpr int kSteps = 400;
  for (uint64_t step = 0; step < kSteps; ++step) {
    const EdgeSet edges = source.choose(request_for(parts, 1, step)).edges;
    EXPECT_TRUE(at::equal(edges.to_mask(), source.choose(request_for(parts, 1, step)).edges.to_mask()));
    counts += edges.to_mask().view({7, 7}).to(at::kFloat);
  }
  EXPECT_TRUE(counts.diagonal().eq(kSteps).all().item<bool>());
  const at::Tensor off = graph_mask().logical_xor(torch::eye(7, at::kBool));
  const at::Tensor shares = counts.masked_select(off) / kSteps;
  EXPECT_LT((shares - 0.5).abs().max().item<double>(), 5 * 0.5 / std::sqrt(kSteps));
  EXPECT_EQ(counts.masked_select(graph_mask().logical_not()).sum().item<double>(), 0);
  source.eval();
  EXPECT_TRUE(at::equal(source.choose(request_for(parts, 1)).edges.to_mask().view({7, 7}), graph_mask()));
}

TEST(ExtraEdges, AreNeverWhatTheGraphHas) {
  const auto graph = kit::small_input();
  const InputGraph::Parts& parts = graph->on(at::kCPU);
  RandomExtraEdges random(3);
  NearestEdges nearest(2);
  TwoHopEdges two_hop(2);
  for (EdgeSource* source : std::initializer_list<EdgeSource*>{&random, &nearest, &two_hop}) {
    const EdgeSet edges = source->choose(request_for(parts)).edges;
    EXPECT_GT(edges.edge_count(), 0);
    EXPECT_FALSE((edges.to_mask() & graph_mask()).any().item<bool>());
    EXPECT_LE(edges.degrees().max().item<int64_t>(), 3);
    EXPECT_TRUE(at::equal(edges.to_mask(), source->choose(request_for(parts)).edges.to_mask()));
  }
  EXPECT_FALSE(at::equal(random.choose(request_for(parts, 1, 1)).edges.to_mask(),
                         random.choose(request_for(parts, 1, 2)).edges.to_mask()));
}

TEST(TwoHopEdges, LeadToNeighboursOfNeighbours) {
  const auto graph = kit::small_input();
  TwoHopEdges source(5);
  const at::Tensor mask = source.choose(request_for(graph->on(at::kCPU), 1)).edges.to_mask().view({7, 7});
  at::Tensor wanted = torch::zeros({7, 7}, at::kBool);
  for (const auto& [i, j] : {std::pair(0, 3), {1, 3}}) wanted[i][j] = wanted[j][i] = true;
  EXPECT_TRUE(at::equal(mask, wanted)) << mask;
}

// By the cosine of the features; node 6 has none, and is nobody's.
TEST(NearestEdges, LeadToTheMostSimilarNodes) {
  const auto graph = kit::small_input();
  NearestEdges source(1);
  const EdgeSet edges = source.choose(request_for(graph->on(at::kCPU), 1)).edges;
  const at::Tensor unit = at::nan_to_num(kit::small_features() / kit::small_features().norm(2, {1}, true));
  const at::Tensor cosine = at::mm(unit, unit.t()).masked_fill(graph_mask(), -1);
  for (int64_t node = 0; node < 7; ++node) {
    const at::Tensor row = edges.to_mask().view({7, 7})[node];
    if (cosine[node].max().item<double>() <= 0) {
      EXPECT_FALSE(row.any().item<bool>()) << node;
      continue;
    }
    EXPECT_EQ(row.sum().item<int64_t>(), 1) << node;
    EXPECT_NEAR(cosine[node].masked_select(row).item<double>(), cosine[node].max().item<double>(), 1e-6);
  }
}

// Beside a learner or a control the graph's edges stay.
TEST(GraphEdges, UniteWithOthers) {
  const auto graph = kit::small_input();
  UnionEdges both({std::make_shared<GraphEdges>(), std::make_shared<TwoHopEdges>(5)});
  const at::Tensor mask = both.choose(request_for(graph->on(at::kCPU), 1)).edges.to_mask().view({7, 7});
  EXPECT_TRUE((mask | graph_mask().logical_not()).all().item<bool>());
  EXPECT_EQ(mask.sum().item<int64_t>(), 17 + 4);
}

}  // namespace
}  // namespace edgewise
