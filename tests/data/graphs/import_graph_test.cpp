// Graphs from Planetoid's files and from lines of one's own; golden counts where the published files are.
#include <ATen/ATen.h>
#include <edgewise/data/graphs/import_graph.h>

#include <cstdlib>
#include <functional>

#include "data/examples/examples_kit.h"
#include "data/graphs/graph_files_kit.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename Number>
std::vector<Number> list(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<Number>(), flat.const_data_ptr<Number>() + flat.numel()};
}
std::vector<int> edges_of(const GraphData& graph) {
  return list<int>(graph.edges);
}
// The rows that are not zero of the first split.
std::vector<int64_t> nodes_in(const at::Tensor& mask) {
  return list<int64_t>(mask.select(0, 0).nonzero().flatten());
}

TEST(Planetoid, NodesWithoutATestRowAreIsolatedAndWithoutALabel) {
  const ScratchFolder scratch;
  write_planetoid(scratch);
  EXPECT_THAT(planetoid_names(scratch.path()), ElementsAre("tiny"));
  const GraphData graph = import_planetoid(scratch.path(), "tiny");
  EXPECT_EQ(graph.nodes, 505);
  EXPECT_THAT(edges_of(graph), ElementsAre(0, 1, 1, 504));
  EXPECT_EQ(list<int>(graph.labels)[503], -1);
  EXPECT_EQ(list<int>(graph.labels)[504], 0);
  EXPECT_THAT(nodes_in(graph.train_mask), ElementsAre(0, 1, 2));
  EXPECT_EQ(nodes_in(graph.validation_mask).size(), 500u);
  EXPECT_THAT(nodes_in(graph.test_mask), ElementsAre(504));
  EXPECT_THAT(list<int>(graph.feature_columns), ElementsAre(0, 3, 2));
  EXPECT_THAT(list<float>(graph.feature_values), ElementsAre(0.5f, 2.f, 7.f));
  EXPECT_EQ(list<int64_t>(graph.feature_offsets)[504], 2) << "nothing of node 503";
}

TEST(Planetoid, FaultsNameTheFileAndThePlace) {
  const ScratchFolder scratch;
  write_planetoid(scratch, "505\n");
  const auto message = [&] { return complaint([&] { import_planetoid(scratch.path(), "tiny"); }); };
  EXPECT_THAT(message(), HasSubstr("line 1 of test.index: expected a node in [503, 505); found 505"));
  write_planetoid(scratch, "504\n504\n");
  EXPECT_THAT(message(), HasSubstr("test.index 2"));
  scratch.write("ind.tiny.tx", matrix({4, {{{2, 7.f}}, {{1, 3.f}}}}));
  scratch.write("ind.tiny.ty", one_hot({0, 1}, 2));
  EXPECT_THAT(message(), HasSubstr("line 2 of test.index: node 504 occurs twice"));
  write_planetoid(scratch);
  const std::string whole = scratch.read("ind.tiny.graph");
  scratch.write("ind.tiny.graph", whole.substr(0, whole.size() / 2));
  EXPECT_THAT(message(), HasSubstr("the pickle ends in the middle of a value"));
  scratch.write("ind.tiny.graph",
                "\x80\x02"
                "cos\nsystem\n(T\x04");  // a call that nobody makes
  EXPECT_THAT(message(), HasSubstr("ind.tiny.graph"));
  scratch.write("ind.tiny.graph", neighbours({{0, {7}}}));
  EXPECT_THAT(message(), HasSubstr("expected nodes in [0, 1); found 7"));
  std::filesystem::remove(scratch / "ind.tiny.allx");
  write_planetoid(scratch);
  std::filesystem::remove(scratch / "ind.tiny.allx");
  EXPECT_THAT(message(), HasSubstr("ind.tiny.allx; there is none"));
}

// Every prefix of a pickle is an error, never a crash.
TEST(Planetoid, CutFilesAreErrors) {
  const ScratchFolder scratch;
  write_planetoid(scratch);
  const std::string whole = scratch.read("ind.tiny.tx");
  for (size_t length = 0; length < whole.size(); ++length) {
    scratch.write("ind.tiny.tx", whole.substr(0, length));
    EXPECT_NE(complaint([&] { import_planetoid(scratch.path(), "tiny"); }), "(no error)") << length;
  }
}

TEST(GraphFile, SavesAndLoadsTheSame) {
  const ScratchFolder scratch;
  write_planetoid(scratch);
  const GraphData graph = import_planetoid(scratch.path(), "tiny");
  save_graph(scratch / "made", graph);
  const GraphData loaded = load_graph(scratch / "made");
  EXPECT_EQ(loaded.name, "tiny");
  EXPECT_TRUE(at::equal(loaded.edges, graph.edges) && at::equal(loaded.labels, graph.labels));
  EXPECT_TRUE(at::equal(loaded.feature_values, graph.feature_values));
  EXPECT_TRUE(at::equal(loaded.validation_mask, graph.validation_mask));
  EXPECT_THAT(complaint([&] { load_graph(scratch / "none"); }), HasSubstr("edgewise data graph"));
}

TEST(GraphFile, FaultsNameThePlace) {
  const ScratchFolder scratch;
  write_planetoid(scratch);
  const GraphData good = import_planetoid(scratch.path(), "tiny");
  const auto message = [&](const std::function<void(GraphData&)>& spoil) {
    GraphData graph = good;
    spoil(graph);
    return complaint([&] { check_graph(graph, "it"); });
  };
  const auto edges = [](std::vector<int> pairs) { return at::tensor(pairs, at::kInt).view({-1, 2}); };
  EXPECT_THAT(message([&](GraphData& g) {
                g.edges = edges({0, 1, 1, 505});
              }),
              HasSubstr("nodes in [0, 505); edge 1 is 1 505"));
  EXPECT_THAT(message([&](GraphData& g) {
                g.edges = edges({3, 3});
              }),
              HasSubstr("edge 0 joins node 3 to itself"));
  EXPECT_THAT(message([&](GraphData& g) {
                g.edges = edges({0, 1, 0, 1});
              }),
              HasSubstr("once each; edge 1 is 0 1"));
  EXPECT_THAT(message([&](GraphData& g) {
                g.edges = edges({4, 1});
              }),
              HasSubstr("smaller node first; edge 0"));
  EXPECT_THAT(message([&](GraphData& g) {
                g.validation_mask = g.validation_mask.clone();
                g.validation_mask[0][1] = true;
              }),
              HasSubstr("node 1 is in train_mask and in val_mask of split 0"));
  EXPECT_THAT(message([&](GraphData& g) {
                g.test_mask = g.test_mask.clone();
                g.test_mask[0][503] = true;
              }),
              HasSubstr("node 503 is in test_mask of split 0 but has no label"));
  EXPECT_THAT(message([&](GraphData& g) { g.feature_values = at::full({3}, NAN); }),
              HasSubstr("feature 0 of node 1 is not a finite number"));
  EXPECT_THAT(message([&](GraphData& g) {
                g.graph_offsets = at::tensor({0, 1, 505}, at::kLong);
              }),
              HasSubstr("edge 0 joins nodes 0 and 1 of different graphs"));
}

TEST(GraphSage, SplitsAreGraphsOfTheirOwn) {
  const ScratchFolder scratch;
  write_graphsage(scratch);
  EXPECT_THAT(graphsage_names(scratch.path()), ElementsAre("tiny"));
  const GraphData graph = import_graphsage(scratch.path(), "tiny");
  EXPECT_EQ(graph.graphs(), 3);
  EXPECT_THAT(list<int64_t>(graph.graph_offsets), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(edges_of(graph), ElementsAre(0, 1)) << "a and c; that to a node of the test is left out";
  EXPECT_THAT(nodes_in(graph.train_mask), ElementsAre(0, 1));
  EXPECT_THAT(nodes_in(graph.test_mask), ElementsAre(3));
  EXPECT_THAT(list<float>(graph.feature_values), ElementsAre(1, 3, 2)) << "a, c, b; d has none";
  EXPECT_TRUE(
      at::equal(graph.labels, at::tensor({1, 0, 1, 1, 0, 0, 0, 1}, at::kInt).view({4, 2}).to(at::kBool)));
  save_graph(scratch / "made", graph);
  EXPECT_TRUE(at::equal(load_graph(scratch / "made").labels, graph.labels));
  EXPECT_EQ(load_graph(scratch / "made").graphs(), 3);
}

TEST(GraphSage, FaultsNameTheFileAndThePlace) {
  const ScratchFolder scratch;
  const auto message = [&] { return complaint([&] { import_graphsage(scratch.path(), "tiny"); }); };
  write_graphsage(scratch, "\"e\"");
  EXPECT_THAT(message(), HasSubstr("tiny-G.json: link 2: expected a node in [0, 4); found e"));
  write_graphsage(scratch);
  scratch.write("tiny-class_map.json", R"({"a": [1, 0], "b": [0]})");
  EXPECT_THAT(message(), HasSubstr("a 0 or 1 for each of 2 classes of every node; node b has [0]"));
  write_graphsage(scratch);
  const std::string features = scratch.read("tiny-feats.npy");
  scratch.write("tiny-feats.npy", features.substr(0, features.size() - 3));
  EXPECT_THAT(message(), HasSubstr("expected 4 numbers of 8 bytes; found 29 bytes"));
  scratch.write("tiny-G.json", "{");
  EXPECT_THAT(message(), HasSubstr("tiny-G.json: expected JSON"));
}

TEST(GraphFiles, LinesOfOnesOwn) {
  const ScratchFolder scratch;
  GraphFiles files = own_files(scratch, "# i j\n0 1\n2\t1\n", "0:1 4:.5\n\n3:-2\n", "b\na\n-\n");
  files.splits = scratch.write("splits.tsv", "train test\ntest,train\n- -\n");
  const GraphData graph = import_graph_files(files).graph;
  EXPECT_THAT(edges_of(graph), ElementsAre(0, 1, 1, 2));
  EXPECT_EQ(graph.features, 5);
  EXPECT_THAT(list<int>(graph.labels), ElementsAre(1, 0, -1)) << "classes in the order of their names";
  EXPECT_EQ(graph.splits(), 2);
  EXPECT_THAT(nodes_in(graph.train_mask), ElementsAre(0));
  GraphFiles dense = own_files(scratch, "0 1\n1 0\n", "1,2\n0,3\n", "10\n9\n");
  dense.splits = scratch.write("splits.tsv", "train\ntest\n");
  const GraphData both = import_graph_files(dense).graph;
  EXPECT_THAT(edges_of(both), ElementsAre(0, 1)) << "listed in both directions";
  EXPECT_THAT(list<int>(both.labels), ElementsAre(1, 0)) << "numbers in their own order";
  EXPECT_THAT(list<int>(both.feature_columns), ElementsAre(0, 1, 1));
}

TEST(GraphFiles, SplitsAreDrawnClassByClass) {
  const ScratchFolder scratch;
  std::string features, labels;
  for (int n = 0; n < 50; ++n) features += "1\n", labels += n < 10 ? "a\n" : "b\n";
  GraphFiles files = own_files(scratch, "0 1\n", features, labels);
  files.random_splits = 2;
  const GraphData graph = import_graph_files(files).graph, again = import_graph_files(files).graph;
  EXPECT_TRUE(at::equal(graph.train_mask, again.train_mask));
  EXPECT_FALSE(at::equal(graph.test_mask.select(0, 0), graph.test_mask.select(0, 1)));
  const at::Tensor first = graph.labels == 0;
  for (int64_t split = 0; split < 2; ++split) {
    EXPECT_EQ(graph.test_mask.select(0, split).logical_and(first).sum().item<int64_t>(), 2);
    EXPECT_EQ(graph.train_mask.select(0, split).sum().item<int64_t>(), 30);
  }
}

TEST(GraphFiles, FaultsNameTheFileAndTheLine) {
  const ScratchFolder scratch;
  const std::string two = "1\n2\n3\n", labels = "a\nb\na\n";
  const auto message = [&](
                           const std::string& edges, const std::string& features, const std::string& classes,
                           const std::function<void(GraphFiles&)>& set = [](GraphFiles&) {}) {
    GraphFiles files = own_files(scratch, edges, features, classes);
    set(files);
    return complaint([&] { import_graph_files(files); });
  };
  EXPECT_THAT(message("0 1\n1 3\n", two, labels), HasSubstr("edges.tsv:2: expected a node"));
  EXPECT_THAT(message("0 1\n2 2\n", two, labels), HasSubstr("edges.tsv:2: node 2 is joined to itself"));
  EXPECT_THAT(message("0 1\n1 2\n0 1\n", two, labels),
              HasSubstr("edges.tsv:3: the edge 0 1 has been listed in line 1"));
  EXPECT_THAT(message("0 1\n1 0\n1 2\n", two, labels),
              HasSubstr("edges.tsv:3: the edge 1 2 is listed in one direction"));
  EXPECT_THAT(message("0 1 2\n", two, labels), HasSubstr("edges.tsv:1: expected two nodes; found 3"));
  EXPECT_THAT(message("0 1\n", "1\n2\n", labels), HasSubstr("found 2 lines, none for node 2"));
  EXPECT_THAT(message("0 1\n", "1 2\n2\n3\n", labels), HasSubstr("features.tsv:2: expected 2 features"));
  EXPECT_THAT(message("0 1\n", "1\nnan\n3\n", labels), HasSubstr("features.tsv:2: expected a feature"));
  EXPECT_THAT(message("0 1\n", "1:2 1:3\n\n\n", labels), HasSubstr("features.tsv:1: a column occurs twice"));
  EXPECT_THAT(message("0 1\n", two, "a\na\na\n"), HasSubstr("expected nodes of two classes at least"));
  EXPECT_THAT(message("0 1\n", two, labels,
                      [&](GraphFiles& f) { f.splits = scratch.write("s", "train\nvalid\n-\n"); }),
              HasSubstr("s:2: expected train, validation, test or -; found 'valid'"));
  EXPECT_THAT(
      message("0 1\n", two, labels, [&](GraphFiles& f) { f.splits = scratch.write("s", "train\n-\n"); }),
      HasSubstr("expected a line for each of 3 nodes; found 2"));

  GraphFiles files = own_files(scratch, "0 1\n1 0\n1 2\n0 1\n2 2\n", two, labels);
  files.splits = scratch.write("splits.tsv", "train\ntest\n-\n");
  files.skip_faulty = true, files.listing = EdgeListing::kUndirected;
  const ImportedGraph made = import_graph_files(files);
  EXPECT_EQ(made.left_out, 2);
  EXPECT_THAT(edges_of(made.graph), ElementsAre(0, 1, 1, 2));
  files.listing = EdgeListing::kDirected;
  EXPECT_THAT(edges_of(import_graph_files(files).graph), ElementsAre(0, 1, 1, 0, 1, 2));
}

// Where EDGEWISE_GRAPHS, or data/published of this repository, has planetoid/ and graphs-safetensors/: the
// published graphs.
class PublishedGraphs : public testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("EDGEWISE_GRAPHS");
    folder_ = folder ? folder : EDGEWISE_SOURCE_DIR "/data/published";
    if (!folder && !std::filesystem::exists(folder_))
      GTEST_SKIP() << "neither EDGEWISE_GRAPHS nor data/published has published graphs";
  }
  std::filesystem::path folder_;
};

// Homophily is that of edges between labelled nodes: .7355 of Citeseer counts its 15 others as class 0.
struct Golden {
  const char* name;
  int64_t nodes, edges, isolated, max_degree, max_degree_node, components, largest, features, non_zeros;
  double homophily;
  std::vector<int64_t> classes;
  std::vector<int64_t> validation_classes, test_classes;
  std::vector<int> first_labels;
  int64_t test_node;
  std::vector<int> test_columns;
};

TEST_F(PublishedGraphs, PlanetoidsCountsAreThePublishedOnes) {
  const Golden all[] = {{"cora",
                         2708,
                         5278,
                         0,
                         168,
                         1358,
                         78,
                         2485,
                         1433,
                         49216,
                         .8100,
                         {351, 217, 418, 818, 426, 298, 180},
                         {61, 36, 78, 158, 81, 57, 29},
                         {130, 91, 144, 319, 149, 103, 64},
                         {3, 4, 4, 0, 3, 2, 0, 3, 3, 2},
                         1708,
                         {7, 41, 65, 192}},
                        {"citeseer",
                         3327,
                         4552,
                         48,
                         99,
                         1422,
                         438,
                         2120,
                         3703,
                         105165,
                         .7377,
                         {249, 590, 668, 701, 596, 508},
                         {29, 86, 116, 106, 94, 69},
                         {77, 182, 181, 231, 169, 160},
                         {3, 1, 5, 5, 3, 1, 3, 0, 3, 5},
                         2312,
                         {18, 95, 166, 177}}};
  for (const Golden& golden : all) {
    const GraphData graph = import_planetoid(folder_ / "planetoid", golden.name);
    const GraphCounts counts = count_graph(graph);
    EXPECT_EQ(graph.nodes, golden.nodes);
    EXPECT_EQ(counts.edges, golden.edges);
    EXPECT_EQ(counts.isolated, golden.isolated);
    EXPECT_EQ(counts.max_degree, golden.max_degree);
    EXPECT_EQ(counts.max_degree_node, golden.max_degree_node);
    EXPECT_EQ(counts.components, golden.components);
    EXPECT_EQ(counts.largest_component, golden.largest);
    EXPECT_NEAR(counts.homophily, golden.homophily, 5e-5);
    EXPECT_EQ(counts.class_sizes, golden.classes);
    const auto classes_in = [&](const at::Tensor& mask) {
      return list<int64_t>(graph.labels.masked_select(mask[0]).bincount());
    };
    EXPECT_EQ(classes_in(graph.train_mask), std::vector<int64_t>(golden.classes.size(), 20));
    EXPECT_EQ(classes_in(graph.validation_mask), golden.validation_classes);
    EXPECT_EQ(classes_in(graph.test_mask), golden.test_classes);
    EXPECT_EQ(graph.features, golden.features);
    EXPECT_EQ(graph.feature_columns.size(0), golden.non_zeros);
    std::vector<int> labels = list<int>(graph.labels);
    EXPECT_EQ(std::vector<int>(labels.begin(), labels.begin() + 10), golden.first_labels);
    const int64_t begin = graph.feature_offsets[golden.test_node].item<int64_t>();
    EXPECT_EQ(list<int>(graph.feature_columns.narrow(0, begin, 4)), golden.test_columns);
    // The same graph in the other form.
    const GraphData other =
        load_graph(folder_ / "graphs-safetensors" / (std::string(golden.name) + ".safetensors.xz"));
    EXPECT_TRUE(at::equal(other.edges, graph.edges) && at::equal(other.labels, graph.labels));
    EXPECT_TRUE(at::equal(other.feature_columns, graph.feature_columns));
    EXPECT_TRUE(at::equal(other.feature_values, graph.feature_values));
    EXPECT_TRUE(at::equal(other.train_mask, graph.train_mask));
    EXPECT_TRUE(at::equal(other.validation_mask, graph.validation_mask));
    EXPECT_TRUE(at::equal(other.test_mask, graph.test_mask));
  }
}

TEST_F(PublishedGraphs, AllTwelveLoad) {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "graphs-safetensors")) {
    const GraphData graph = load_graph(entry.path());
    EXPECT_EQ(graph.splits(), graph.name == "cora" || graph.name == "citeseer" ? 1 : 10) << graph.name;
    ++count;
  }
  EXPECT_EQ(count, 12);
}

}  // namespace
}  // namespace edgewise::data
