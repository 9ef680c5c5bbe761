// Nodes of graphs as a data set: what a batch holds, several graphs, and the figures that they are judged by.
#include <ATen/ATen.h>
#include <edgewise/data/graphs/graph_nodes.h>
#include <edgewise/tasks/node_labels.h>

#include <array>
#include <atomic>
#include <cmath>
#include <thread>

#include "data/examples/examples_kit.h"
#include "kit/scratch_folder.h"
#include "kit/small_graph.h"

namespace edgewise::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> list(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

TEST(GraphNodes, ABatchIsTheWholeGraphAndAsksSomeNodes) {
  const GraphNodes nodes(kit::small_graph(), {.split = 0, .normalise = true});
  EXPECT_EQ(nodes.size(Split::kTrain), 1);
  const Batch train = nodes.batch(Split::kTrain, std::array<int64_t, 1>{0}),
              test = nodes.batch(Split::kTest, std::array<int64_t, 1>{0});
  EXPECT_THAT(list(train.labels), ElementsAre(0, 1, -1, -1, -1, -1, -1));
  EXPECT_THAT(list(test.labels), ElementsAre(-1, -1, -1, 2, -1, 2, -1));
  EXPECT_EQ(train.towers[0].graph, test.towers[0].graph) << "the graph is made once";
  EXPECT_TRUE(train.labels.is_same(nodes.batch(Split::kTrain, std::array<int64_t, 1>{0}).labels));
  const InputGraph::Parts& parts = train.towers[0].graph->on(at::kCPU);
  EXPECT_EQ(parts.relations.edges.edge_count(), 10 + 7) << "both directions, and a loop a node";
  EXPECT_THAT(list(parts.relations.ids), ElementsAre(2, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 2, 2, 1, 1, 2, 2));
  const at::Tensor dense = at::zeros({7, 4});
  dense.index_put_({parts.features.rows.edge_rows(), parts.features.rows.col_indices().to(at::kLong)},
                   parts.features.row_values);
  EXPECT_TRUE(at::allclose(dense.sum(1), at::tensor({1., 1., 1., 1., 1., 1., 0.}, at::kFloat)));
  EXPECT_TRUE(at::equal(GraphNodes(kit::small_graph(), {.split = 1})
                            .batch(Split::kTrain, std::array<int64_t, 1>{0})
                            .labels.ge(0),
                        kit::small_graph().train_mask.slice(0, 1, 2)));
  EXPECT_NEAR(nodes.baselines(Split::kValidation)[0].value, 0.5, 1e-12);
}

TEST(GraphNodes, TheTransposeOfTheFeaturesIsTheirs) {
  const auto graph = kit::small_input();
  const InputGraph::Parts& parts = graph->on(at::kCPU, at::kDouble);
  const auto dense = [](const EdgeSet& edges, const at::Tensor& values) {
    return at::zeros({edges.shape().queries, edges.shape().keys}, at::kDouble)
        .index_put({edges.edge_rows(), edges.col_indices().to(at::kLong)}, values);
  };
  EXPECT_TRUE(at::equal(dense(parts.features.rows, parts.features.row_values),
                        kit::small_features().to(at::kDouble)));
  EXPECT_TRUE(at::equal(dense(parts.features.columns, parts.features.column_values).t(),
                        kit::small_features().to(at::kDouble)));
}

// Two graphs, the second of which nobody trains on.
TEST(GraphNodes, SeveralGraphsLieSideBySide) {
  GraphData graph = kit::small_graph();
  graph.graph_offsets = at::tensor({0, 4, 7}, at::kLong);
  const GraphNodes nodes(graph, {.split = 0, .normalise = false});
  EXPECT_EQ(nodes.size(Split::kTrain), 1);
  EXPECT_EQ(nodes.size(Split::kTest), 2);
  const Batch train = nodes.batch(Split::kTrain, std::array<int64_t, 1>{0});
  EXPECT_EQ(train.towers[0].graph->nodes(), 4);
  const Batch second = nodes.batch(Split::kTest, std::array<int64_t, 1>{1});
  EXPECT_THAT(list(second.towers[0].tokens), ElementsAre(4, 5, 6));
  EXPECT_THAT(list(second.labels), ElementsAre(-1, 2, -1));
  EXPECT_EQ(second.towers[0].graph->on(at::kCPU).relations.edges.edge_count(), 2 + 3);
  EXPECT_EQ(nodes.batch(Split::kTest, std::array<int64_t, 2>{1, 0}).towers[0].graph->nodes(), 7);
  EXPECT_THAT(nodes.labels(Split::kTest), ElementsAre(-1, -1, -1, 2, -1, 2, -1));
}

TEST(GraphNodes, OptionsThatDoNotFitAreErrors) {
  EXPECT_THAT(complaint([] { GraphNodes(kit::small_graph(), {.split = 2}); }),
              HasSubstr("expected data.split in [0, 2)"));
  EXPECT_THAT(complaint([] { GraphNodes(kit::small_graph(), {.metric = "roc_auc"}); }),
              HasSubstr("with two classes; small has 3"));
  EXPECT_THAT(complaint([] { GraphNodes(kit::small_graph(), {.metric = "micro_f1"}); }),
              HasSubstr("expected data.metric = accuracy or roc_auc"));
}

TEST(InputGraphs, PairsThatAreNoEdgesAreErrors) {
  const GraphData graph = kit::small_graph();
  const auto message = [&](std::vector<int> pairs) {
    return complaint([&] {
      InputGraph(SparseMatrix::from_csr(graph.features, graph.feature_offsets, graph.feature_columns,
                                        graph.feature_values),
                 at::tensor(pairs, at::kInt).view({-1, 2}));
    });
  };
  EXPECT_THAT(message({0, 7}), HasSubstr("between nodes in [0, 7)"));
  EXPECT_THAT(message({1, 1}), HasSubstr("without loops"));
  EXPECT_THAT(message({1, 2, 1, 2}), HasSubstr("every edge once"));
}

TEST(RocAuc, IsTheShareOfPairsInTheRightOrder) {
  EXPECT_EQ(tasks::roc_auc({.1, .4, .35, .8}, {0, 0, 1, 1}), 0.75);
  EXPECT_EQ(tasks::roc_auc({1, 1, 1, 1}, {0, 1, 0, 1}), 0.5) << "ties count half";
  EXPECT_EQ(tasks::roc_auc({5, .1, .2, 7}, {-1, 0, 1, -1}), 1) << "who is not asked does not count";
  EXPECT_EQ(tasks::roc_auc({1, 2}, {1, 1}), 0.5);
}

// Labels of their own: micro F1 over all pairs of an asked node and a class.
TEST(NodeLabels, ManyLabelsAreJudgedByMicroF1) {
  GraphData graph = kit::small_graph();
  graph.labels = at::tensor({1, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0}, at::kInt)
                     .view({7, 3})
                     .to(at::kBool);
  const auto nodes = std::make_shared<GraphNodes>(graph);
  const tasks::NodeLabels task(nodes);
  EXPECT_EQ(task.metric().name, "micro_f1");
  const Batch batch = nodes->batch(Split::kTrain, std::array<int64_t, 1>{0});  // nodes 0 and 1
  const at::Tensor logits = at::full({1, 7, 3}, -1.0);
  logits[0][0][0] = 2, logits[0][0][1] = 2, logits[0][1][1] = 2, logits[0][6][1] = 9;
  const tasks::Score score = task.objective().score(logits, batch);
  EXPECT_EQ(score.correct.item<int64_t>(), 3);
  EXPECT_EQ(task.objective().count_targets(batch), 6);
  const at::Tensor asked = logits[0].slice(0, 0, 2), wanted = graph.labels.slice(0, 0, 2).to(at::kFloat);
  EXPECT_NEAR(score.loss.item<double>(),
              at::binary_cross_entropy_with_logits(asked, wanted, {}, {}, at::Reduction::Sum).item<double>(),
              1e-5);
}

// Micro F1 is of the nodes that are asked alone: neither labels nor answers of others change it.
TEST(NodeLabels, MicroF1IsOfTheNodesThatAreAsked) {
  GraphData graph = kit::small_graph();
  graph.labels = at::tensor({1, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0}, at::kInt)
                     .view({7, 3})
                     .to(at::kBool);
  const auto value = [](const GraphData& of, Split split, const at::Tensor& logits) {
    const tasks::NodeLabels task(std::make_shared<GraphNodes>(of));
    return task.figures({}, task.answers_of(logits), split).at(0).value;
  };
  at::Tensor logits = at::linspace(-2, 2, 21, at::kDouble).view({1, 7, 3}).sin() * 3;
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
    const at::Tensor& mask = split == Split::kTrain        ? graph.train_mask
                             : split == Split::kValidation ? graph.validation_mask
                                                           : graph.test_mask;
    const at::Tensor asked = mask[0], said = logits[0].index({asked}) > 0,
                     wanted = graph.labels.index({asked});
    const double right = (said & wanted).sum().item<double>(), wrong = said.ne(wanted).sum().item<double>();
    const double f1 = value(graph, split, logits);
    EXPECT_NEAR(f1, 2 * right / (2 * right + wrong), 1e-12);
    GraphData other = graph;
    other.labels = graph.labels.logical_xor(asked.logical_not().unsqueeze(1));
    EXPECT_EQ(value(other, split, logits), f1) << "labels of nodes that nobody asks";
    EXPECT_EQ(value(graph, split, at::where(asked.unsqueeze(1), logits, -logits)), f1) << "answers of these";
  }
}

// What is no order has no area; and it ends.
TEST(RocAuc, OfNoNumbersIsNone) {
  EXPECT_TRUE(std::isnan(tasks::roc_auc({1, NAN, 2}, {0, 1, 1})));
  EXPECT_EQ(tasks::roc_auc({1, NAN, 2}, {0, -1, 1}), 1);
}

TEST(GraphNodes, FeaturesAreScaledByWhatTheKeysSay) {
  GraphData graph = kit::small_graph();
  const auto dense = [](const GraphNodes& nodes) {
    const Batch batch = nodes.batch(Split::kTrain, std::array<int64_t, 1>{0});
    const SparseMatrix& features = batch.towers[0].graph->on(at::kCPU).features;
    return at::zeros({7, 4}).index_put_(
        {features.rows.edge_rows(), features.rows.col_indices().to(at::kLong)}, features.row_values);
  };
  const at::Tensor all = kit::small_features(), train = all.slice(0, 0, 2);  // nodes 0 and 1 are trained on
  const at::Tensor mean = train.mean(0), deviation = (train - mean).square().mean(0).sqrt();
  const at::Tensor wanted = (all - mean) / at::where(deviation == 0, at::ones({}), deviation);
  EXPECT_TRUE(
      at::allclose(dense(GraphNodes(graph, {.normalise = false, .standardise = true})), wanted, 1e-5, 1e-6));
  EXPECT_TRUE(at::equal(dense(GraphNodes(graph, {.normalise = false})), all));
  EXPECT_THAT(complaint([&] { GraphNodes(graph, {.standardise = true}); }),
              HasSubstr("data.normalise = false with"));
  graph.feature_values = graph.feature_values.clone();
  graph.feature_values[3] = -1;  // feature 2 of node 1
  EXPECT_THAT(complaint([&] { GraphNodes{graph}; }),
              HasSubstr("node 1 of small has feature 2 = -1. Set data.normalise = false"));
  graph.train_mask = at::zeros_like(graph.train_mask);
  EXPECT_THAT(complaint([&] { GraphNodes(graph, {.normalise = false, .standardise = true}); }),
              HasSubstr("expected training nodes"));
}

// Validation reads labels while batches are made ahead in another thread.
TEST(GraphNodes, LabelsAreReadBesideBatches) {
  GraphData graph = kit::small_graph();
  graph.graph_offsets = at::tensor({0, 4, 7}, at::kLong);
  const GraphNodes nodes(graph, {.normalise = false});
  std::atomic<bool> done = false;
  std::thread ahead([&] {
    for (int64_t n = 0; !done; ++n) nodes.batch(Split::kTest, std::array<int64_t, 1>{n % 2});
  });
  for (int n = 0; n < 300; ++n)
    ASSERT_THAT(nodes.labels(Split::kTest), ElementsAre(-1, -1, -1, 2, -1, 2, -1));
  done = true;
  ahead.join();
}

}  // namespace
}  // namespace edgewise::data
