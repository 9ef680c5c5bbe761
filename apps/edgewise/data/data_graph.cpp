// edgewise data graph: a graph with features and labels of its nodes, from the forms that graphs are
// distributed in, or from lines of one's own.
#include "data/data_graph.h"

#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <edgewise/data/graphs/import_graph.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "data/data_lra.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct GraphArguments {
  std::string from, name, out, edges, features, labels, splits;
  bool undirected = false, directed = false, overwrite = false;
  data::GraphFiles files;
};

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// What lies at --from: a file, a folder of Planetoid's or GraphSAGE's, or one that this command has written.
data::GraphData read_published(const GraphArguments& arguments) {
  const std::filesystem::path from = arguments.from;
  TORCH_CHECK_VALUE(std::filesystem::exists(from), "--from: expected a file or a folder; there is no ",
                    from.string());
  if (!std::filesystem::is_directory(from) || std::filesystem::exists(data::graph_path(from)))
    return data::load_graph(from);
  const std::vector<std::string> citations = data::planetoid_names(from),
                                 others = data::graphsage_names(from);
  const std::vector<std::string>& names = citations.empty() ? others : citations;
  TORCH_CHECK_VALUE(!names.empty(),
                    "--from: expected a .safetensors file, plain or .xz, or a folder with Planetoid's files "
                    "ind.NAME.graph or GraphSAGE's NAME-G.json; ",
                    from.string(), " has neither");
  TORCH_CHECK_VALUE(names.size() == 1 || !arguments.name.empty(), "--name: ", from.string(), " holds ",
                    listed(names), "; say which");
  const std::string name = arguments.name.empty() ? names[0] : arguments.name;
  TORCH_CHECK_VALUE(std::ranges::find(names, name) != names.end(), "--name: expected one of ", listed(names),
                    ", which ", from.string(), " holds; got ", name);
  return citations.empty() ? data::import_graphsage(from, name) : data::import_planetoid(from, name);
}

data::ImportedGraph read_own(const GraphArguments& arguments) {
  for (const auto& [option, value] : {std::pair("--edges", &arguments.edges),
                                      {"--features", &arguments.features},
                                      {"--labels", &arguments.labels}})
    TORCH_CHECK_VALUE(!value->empty(), "data graph: expected ", option,
                      "; a graph of your own needs --edges, --features and --labels, a published one --from");
  TORCH_CHECK_VALUE(!arguments.undirected || !arguments.directed,
                    "data graph: expected --undirected or --directed; got both");
  data::GraphFiles files = arguments.files;
  files.edges = arguments.edges, files.features = arguments.features, files.labels = arguments.labels;
  if (!arguments.splits.empty()) files.splits = arguments.splits;
  if (!arguments.name.empty()) files.name = arguments.name;
  if (arguments.undirected) files.listing = data::EdgeListing::kUndirected;
  if (arguments.directed) files.listing = data::EdgeListing::kDirected;
  return data::import_graph_files(files);
}

void describe(const data::GraphData& graph) {
  const data::GraphCounts counts = data::count_graph(graph);
  std::string sizes;
  for (const int64_t size : counts.class_sizes) sizes += (sizes.empty() ? "" : " ") + std::to_string(size);
  Table table({"graph", graph.name});
  const auto row = [&](const std::string& what, const std::string& value) { table.add({what, value}); };
  row("nodes", std::to_string(graph.nodes));
  if (graph.graphs() > 1) row("graphs", std::to_string(graph.graphs()));
  row(graph.is_directed ? "directed edges" : "undirected edges", std::to_string(counts.edges));
  row("nodes without an edge", std::to_string(counts.isolated));
  row("components", std::to_string(counts.components) + ", the largest of " +
                        std::to_string(counts.largest_component) + " nodes");
  if (!graph.has_many_labels()) row("edges within a class", percent(counts.homophily));
  row("features",
      std::to_string(graph.features) + ", " + std::to_string(graph.feature_columns.size(0)) + " not 0");
  row("classes", std::to_string(graph.classes) + ": " + sizes);
  row("splits", std::to_string(graph.splits()));
  const auto nodes_of = [&](const at::Tensor& mask) {
    return std::to_string(mask.select(0, 0).sum().item<int64_t>());
  };
  row("nodes of the first", "train " + nodes_of(graph.train_mask) + ", validation " +
                                nodes_of(graph.validation_mask) + ", test " + nodes_of(graph.test_mask));
  table.print(std::cout);
}

int run(const GraphArguments& arguments) {
  check_overwrites("graph", data::graph_path(arguments.out), arguments.overwrite);
  const bool is_own = arguments.from.empty();
  TORCH_CHECK_VALUE(is_own || (arguments.edges + arguments.features + arguments.labels).empty(),
                    "data graph: expected --from, or --edges, --features and --labels; got both");
  const data::ImportedGraph made =
      is_own ? read_own(arguments) : data::ImportedGraph{.graph = read_published(arguments)};
  data::save_graph(arguments.out, made.graph);
  if (made.left_out > 0) std::cerr << counted(made.left_out, "line") << " of edges left out\n";
  describe(data::load_graph(arguments.out));  // of what was written
  return 0;
}

}  // namespace

void add_data_graph(CLI::App& data, Action& action) {
  auto arguments = std::make_shared<GraphArguments>();
  CLI::App* command =
      data.add_subcommand("graph", "A graph with features and labels of its nodes: published, or your own");
  command->add_option("--from", arguments->from,
                      "a .safetensors file, plain or .xz, or a folder with Planetoid's files ind.NAME.* or "
                      "GraphSAGE's NAME-G.json, ...");
  command->add_option("--name", arguments->name, "which of the folder's graphs; or what to call your own");
  command->add_option("--edges", arguments->edges, "your own: two nodes a line, counted from 0");
  command->add_option("--features", arguments->features,
                      "a line per node: numbers, or column:number for those that are not 0");
  command->add_option("--labels", arguments->labels, "a line per node: its class; empty or - without one");
  command->add_option("--splits", arguments->splits,
                      "a line per node: train, validation, test or -, once per split; default: drawn");
  command->add_option("--out", arguments->out, "folder for the data set")->required();
  command->add_flag("--undirected", arguments->undirected,
                    "an edge may be listed in one direction or in both");
  command->add_flag("--directed", arguments->directed, "a line \"i j\" says that i attends to j alone");
  command->add_flag("--many-labels", arguments->files.many_labels,
                    "labels are a 0 or 1 for every class, any number of them a node");
  command->add_flag("--skip-faulty", arguments->files.skip_faulty,
                    "leave out loops and repeated lines of edges, and say how many");
  command
      ->add_option("--hold-out", arguments->files.hold_out,
                   "share of every class that is drawn for validation, and for test")
      ->capture_default_str()
      ->check(number_between(0.001, 0.4));
  command->add_option("--random-splits", arguments->files.random_splits, "how many splits are drawn")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--seed", arguments->files.seed, "which nodes are drawn")
      ->capture_default_str()
      ->check(whole_number(0));
  command->add_flag("--overwrite", arguments->overwrite, kOverwriteHelp);
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
