// Whole runs on a graph: what a network over its edges learns, the rule of GAT's authors for stopping and
// keeping, resuming, and recipes that do not fit a graph.
#include <edgewise/data/graphs/graph_data.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/message_of.h"
#include "kit/scratch_folder.h"

namespace edgewise::train {
namespace {

using kit::ScratchFolder;
using testing::HasSubstr;

// 90 nodes of three classes. Features say a third of the classes, edges mostly join nodes of one class.
void write_graph(const std::filesystem::path& folder) {
  torch::manual_seed(1);
  constexpr int64_t kNodes = 90;
  const at::Tensor classes = torch::arange(kNodes).remainder(3);
  data::GraphData graph;
  graph.name = "planted";
  graph.nodes = kNodes, graph.features = 4, graph.classes = 3;
  const at::Tensor told = torch::rand({kNodes}) < 0.4;
  graph.feature_offsets = torch::arange(kNodes + 1);
  graph.feature_columns = torch::where(told, classes, torch::full({kNodes}, 3)).to(at::kInt);
  graph.feature_values = torch::ones({kNodes});
  const at::Tensor alike = classes.unsqueeze(0) == classes.unsqueeze(1);
  const at::Tensor pairs = torch::rand({kNodes, kNodes}) < torch::where(alike, 0.2, 0.01);
  graph.edges = pairs.triu(1).nonzero().to(at::kInt).contiguous();
  graph.labels = classes.to(at::kInt);
  const at::Tensor part = torch::arange(kNodes).div(3, "floor").remainder(3);
  for (const auto& [mask, number] :
       {std::pair(&graph.train_mask, 0), {&graph.validation_mask, 1}, {&graph.test_mask, 2}})
    *mask = (part == number).unsqueeze(0).contiguous();
  graph.graph_offsets = torch::tensor({int64_t{0}, kNodes});
  data::save_graph(folder, graph);
}

Recipe recipe_for(const ScratchFolder& scratch, const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = {"data.path=" + (scratch / "graph").string()};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parse_recipe(R"(
[data]
name = "graph"
[model]
layers = 2
heads = 4
dim = 16
dropout = 0.2
attention_dropout = 0.2
[attention]
kind = "graph"
[train]
steps = 60
batch = 1
learning_rate = 0.02
schedule = "constant"
l2 = 5e-4
eval_every = 1
patience = 30
keep = "metric_and_loss"
checkpoint_every = 10
log_every = 10
threads = 1
)",
                      "graph run", all);
}

RunSummary run(const Recipe& recipe, const std::filesystem::path& folder, bool resume = false) {
  TrainerOptions options;
  options.run_folder = folder;
  options.resume = resume;
  return Trainer(recipe, open_task(recipe), options).run();
}

TEST(GraphRun, LearnsFromTheNeighbours) {
  const ScratchFolder scratch;
  write_graph(scratch / "graph");
  const RunSummary summary = run(recipe_for(scratch), scratch / "run");
  ASSERT_TRUE(summary.test);
  EXPECT_GT(summary.test->accuracy, 0.8) << "features alone say less than 0.6";
}

TEST(GraphRun, LearnedEdgesAndControlsTrainToo) {
  const ScratchFolder scratch;
  write_graph(scratch / "graph");
  for (const std::string kind : {"graph+sbm", "graph+random", "graph+nearest", "graph+two_hop"}) {
    std::vector<std::string> more = {"attention.kind=" + kind, "train.steps=8"};
    if (kind == "graph+sbm") more.push_back("sbm.initial_density=0.05"), more.push_back("sbm.clusters=8");
    const RunSummary summary = run(recipe_for(scratch, more), scratch / kind);
    ASSERT_TRUE(summary.test) << kind;
    EXPECT_GT(summary.test->density.mean().item<double>(),
              run(recipe_for(scratch, {"train.steps=1"}), scratch / (kind + "-plain"))
                  .test->density.mean()
                  .item<double>())
        << kind;
  }
}

// Edges beside the graph's are as many as graph.extra says, whatever is learned and however weights decay:
// controls of the same number are controls.
TEST(GraphRun, LearnedEdgesKeepTheirNumber) {
  const ScratchFolder scratch;
  write_graph(scratch / "graph");
  constexpr double kNodes = 90;
  // The mean over layers and heads of edges a node; pattern by pattern at the end of a run.
  const auto edges_a_node = [&](const std::vector<std::string>& overrides, const std::string& name) {
    return run(recipe_for(scratch, overrides), scratch / name).test->density.mean().item<double>() * kNodes;
  };
  const double plain = edges_a_node({"train.steps=1"}, "plain");
  for (const std::string density : {"0.05", "0.5"}) {
    const double with = edges_a_node({"attention.kind=graph+sbm", "graph.extra=3", "sbm.clusters=8",
                                      "sbm.initial_density=" + density, "train.steps=150", "train.l2=5e-3"},
                                     "sbm" + density);
    // Ten heads and layers of 270 expected edges: a deviation of at most 16 edges each.
    EXPECT_NEAR(with - plain, 3, 5 * std::sqrt(270.0 / 5) / kNodes) << density;
  }
  for (const std::string kind : {"graph+indexer", "graph+sac"})
    EXPECT_NEAR(edges_a_node({"attention.kind=" + kind, "graph.extra=3", "train.steps=2"}, kind) - plain, 3,
                1e-6);
}

TEST(GraphRun, DotScoresHopsAndLearnedSkipsTrain) {
  const ScratchFolder scratch;
  write_graph(scratch / "graph");
  const RunSummary dot = run(recipe_for(scratch, {"graph.scores=dot"}), scratch / "dot");
  EXPECT_GT(dot.test->accuracy, 0.8);
  for (const std::string kind : {"graph+sbm", "graph+indexer", "graph+sac"}) {
    const RunSummary summary = run(
        recipe_for(scratch, {"attention.kind=" + kind, "graph.hops=2", "graph.scores=dot", "graph.skip=all",
                             "graph.learned_skip=true", "model.layers=3", "train.steps=3"}),
        scratch / kind);
    EXPECT_TRUE(std::isfinite(summary.test->loss)) << kind;
  }
}

// What is kept are the weights of the last validation whose metric and loss were both no worse than ever;
// the run ends after `patience` validations in a row with both worse.
TEST(GraphRun, KeepsAndStopsAsTheAuthorsDo) {
  const ScratchFolder scratch;
  write_graph(scratch / "graph");
  const Recipe recipe =
      recipe_for(scratch, {"train.steps=400", "train.patience=5", "train.learning_rate=0.05"});
  const RunSummary summary = run(recipe, scratch / "run");
  double best = -1, least = 1e9;
  int64_t kept = 0, since = 0, last = 0;
  for (const MetricRecord& record : read_metrics(scratch / "run" / "metrics.jsonl")) {
    if (std::get<std::string>(*find_metric(record, "kind")) != "eval") continue;
    const double accuracy = std::get<double>(*find_metric(record, "accuracy")),
                 loss = std::get<double>(*find_metric(record, "loss"));
    last = std::get<int64_t>(*find_metric(record, "step"));
    EXPECT_LT(since, 5) << "the run should have ended before step " << last;
    if (accuracy >= best && loss <= least) kept = last;
    since = accuracy >= best || loss <= least ? 0 : since + 1;
    best = std::max(best, accuracy), least = std::min(least, loss);
  }
  EXPECT_EQ(summary.best_step, kept);
  EXPECT_EQ(summary.steps, last);
  if (summary.steps < 400) {
    EXPECT_EQ(since, 5);
  }
}

TEST(GraphRun, ResumesToTheSameNumbers) {
  const ScratchFolder scratch;
  write_graph(scratch / "graph");
  const RunSummary whole = run(recipe_for(scratch, {"train.steps=24"}), scratch / "whole");
  run(recipe_for(scratch, {"train.steps=13"}), scratch / "cut");
  const RunSummary resumed = run(recipe_for(scratch, {"train.steps=24"}), scratch / "cut", /*resume=*/true);
  EXPECT_EQ(whole.best_step, resumed.best_step);
  EXPECT_EQ(whole.test->loss, resumed.test->loss);
}

TEST(GraphRecipe, RefusesWhatDoesNotFitAGraph) {
  const ScratchFolder scratch;
  write_graph(scratch / "graph");
  const auto message = [&](const std::vector<std::string>& overrides) {
    return kit::message_of([&] { recipe_for(scratch, overrides); });
  };
  EXPECT_THAT(message({"attention.kind=window"}),
              HasSubstr("found window, which does not join the edges of an input graph"));
  EXPECT_THAT(message({"data.name=repeated_tokens"}), HasSubstr("which is for the edges of an input graph"));
  EXPECT_THAT(message({"attention.unit=16"}), HasSubstr("numbers of nodes are arbitrary"));
  EXPECT_THAT(kit::message_of([&] { open_task(recipe_for(scratch, {"data.split=3"})); }),
              HasSubstr("expected data.split in [0, 1)"));
  EXPECT_NO_THROW(open_task(recipe_for(scratch, {"data.split=-1", "train.seed=7"})));
  EXPECT_THAT(message({"train.precision=bf16"}), HasSubstr("expected train.precision = fp32 with a graph"));
  EXPECT_THAT(message({"train.density_weight=0.1"}), HasSubstr("graph.extra says how many edges"));
  EXPECT_THAT(message({"graph.hops=2"}), HasSubstr("with edges that are learned; found 2 with graph"));
  EXPECT_THAT(message({"attention.kind=graph+sbm", "graph.hops=1"}), HasSubstr("graph.hops of at least 2"));
}

// Graphs that lie side by side in a batch: nothing may join them.
TEST(GraphRecipe, EdgesBesideTheGraphDoNotJoinGraphs) {
  const ScratchFolder scratch;
  write_graph(scratch / "graph");
  data::GraphData two = data::load_graph(scratch / "graph");
  const at::Tensor inside = two.edges.select(1, 0).lt(45).eq(two.edges.select(1, 1).lt(45));
  two.edges = two.edges.index({inside}).contiguous();
  two.graph_offsets = torch::tensor({0, 45, 90}, at::kLong);
  data::save_graph(scratch / "graph", two);
  for (const std::string kind :
       {"graph+sbm", "graph+sac", "graph+indexer", "graph+random", "graph+nearest"}) {
    EXPECT_THAT(kit::message_of([&] {
                  open_task(recipe_for(scratch, {"train.batch=2", "attention.kind=" + kind}));
                }),
                HasSubstr("expected train.micro_batch = 1 with attention.kind = " + kind));
    EXPECT_NO_THROW(open_task(recipe_for(scratch, {"train.batch=1", "attention.kind=" + kind}))) << kind;
  }
  EXPECT_NO_THROW(
      open_task(recipe_for(scratch, {"train.batch=2", "attention.kind=graph+sbm", "graph.hops=2"})));
  EXPECT_NO_THROW(open_task(recipe_for(scratch, {"train.batch=2", "attention.kind=graph+two_hop"})));
  // One a batch or both, the answers are the same, and both count as examples.
  const RunSummary one = run(recipe_for(scratch, {"train.batch=1", "train.steps=4"}), scratch / "one");
  EXPECT_EQ(one.test->examples, 2);
  const RunSummary both = run(recipe_for(scratch, {"train.batch=2", "train.steps=4"}), scratch / "both");
  EXPECT_EQ(both.test->examples, 2);
}

// Two classes by the area under the curve, and many labels by micro F1.
TEST(GraphRun, OtherMetricsAndSeveralGraphs) {
  const ScratchFolder scratch;
  write_graph(scratch / "graph");
  data::GraphData graph = data::load_graph(scratch / "graph");
  graph.classes = 2, graph.labels = graph.labels.clamp_max(1);
  data::save_graph(scratch / "graph", graph);
  const RunSummary auc = run(recipe_for(scratch, {"data.metric=roc_auc"}), scratch / "auc");
  EXPECT_EQ(auc.test->metric->name, "roc_auc");
  EXPECT_GT(auc.test->value(), 0.85);
  torch::manual_seed(8);
  graph.labels =
      torch::stack({graph.labels == 0, graph.labels == 1, torch::rand({90}) < 0.5}, 1).contiguous();
  graph.classes = 3;
  data::save_graph(scratch / "graph", graph);
  const RunSummary f1 = run(recipe_for(scratch), scratch / "f1");
  EXPECT_EQ(f1.test->metric->name, "micro_f1");
  EXPECT_GT(f1.test->value(), 0.6);
  EXPECT_NE(f1.test->value(), *f1.best) << "of other nodes";
}

}  // namespace
}  // namespace edgewise::train
