// Graphs: the file of our own, Planetoid's, GraphSAGE's, and lines of text.
#include <edgewise/data/graphs/graph_nodes.h>
#include <edgewise/data/graphs/import_graph.h>

#include "fuzz_target.h"
#include "python_bytes.h"

namespace edgewise::fuzz {
namespace {

const std::vector<const char*> kPlanetoid = {"x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"};

std::string one_hot(int64_t rows) {
  std::string ones;
  for (int64_t row = 0; row < rows; ++row)
    ones += row % 2 ? std::string("\0\0\x80\x3f\0\0\0\0", 8) : std::string("\0\0\0\0\0\0\x80\x3f", 8);
  return pickled(pickled_array_bytes({rows, 2}, "f4", ones));
}

std::string planetoid_seed() {
  constexpr int64_t kKnown = 502;  // of training and the 500 of validation
  return join_parts({pickled(pickled_matrix_bytes(2, 3)), one_hot(2), pickled(pickled_matrix_bytes(2, 3)),
                     one_hot(2), pickled(pickled_matrix_bytes(kKnown, 3)), one_hot(kKnown),
                     pickled(pickled_neighbours(kKnown + 2)), "503\n502\n"});
}

// A graph that was read is one that can be written, read and learned from.
void use(const data::GraphData& graph) {
  data::save_graph(scratch() / "graph-again", graph);
  const data::GraphData again = data::load_graph(scratch() / "graph-again");
  must(again.nodes == graph.nodes && again.edges.equal(graph.edges), "the same graph again");
  data::count_graph(graph);
}

void run_planetoid(std::string_view input) {
  std::filesystem::create_directories(scratch() / "planetoid");
  const auto parts = parts_of(input, kPlanetoid.size());
  for (size_t n = 0; n < parts.size(); ++n)
    write_scratch(std::string("planetoid/ind.g.") + kPlanetoid[n], parts[n]);
  refuses_or_reads([] { use(data::import_planetoid(scratch() / "planetoid", "g")); });
}

const std::vector<const char*> kGraphsage = {"g-G.json", "g-class_map.json", "g-feats.npy", "g-id_map.json",
                                             "g-graph_id.npy"};

void run_graphsage(std::string_view input) {
  std::filesystem::create_directories(scratch() / "sage");
  const auto parts = parts_of(input, kGraphsage.size());
  for (size_t n = 0; n < parts.size(); ++n) {
    const std::string name = std::string("sage/") + kGraphsage[n];
    if (parts[n].empty())
      std::filesystem::remove(scratch() / name);
    else
      write_scratch(name, parts[n]);
  }
  refuses_or_reads([] { use(data::import_graphsage(scratch() / "sage", "g")); });
}

std::vector<std::string> graphsage_seeds() {
  const std::string graph =
      R"({"nodes": [{"id": "a", "val": false, "test": false}, {"id": "b", "val": true}, {"id": 2, "test": true}],
 "links": [{"source": "a", "target": "b"}, {"source": 2, "target": 2}]})";
  const std::string features = npy_bytes("<f4", "(3, 2)", std::string(24, '\x3f'));
  return {join_parts({graph, R"({"a": [0, 1], "b": [1, 1], "2": [0, 0]})", features,
                      R"({"a": 0, "b": 1, "2": 2})", ""}),
          join_parts({R"({"nodes": [{"id": 0}, {"id": 1}], "links": []})", R"({"0": 0, "1": 1})",
                      npy_bytes("<f8", "(2, 1)", std::string(16, '\0')), "",
                      npy_bytes("<i8", "(2,)", std::string(16, '\0'))})};
}

// The first byte chooses how the lists are meant.
void run_lists(std::string_view input) {
  const char how = input.empty() ? 0 : input[0];
  if (!input.empty()) input.remove_prefix(1);
  const auto parts = parts_of(input, 4);
  data::GraphFiles files{.edges = write_scratch("edges.txt", parts[0]),
                         .features = write_scratch("features.txt", parts[1]),
                         .labels = write_scratch("labels.txt", parts[2])};
  if (!parts[3].empty()) files.splits = write_scratch("splits.txt", parts[3]);
  files.many_labels = how & 1;
  files.skip_faulty = how & 2;
  files.listing = how & 4   ? data::EdgeListing::kDirected
                  : how & 8 ? data::EdgeListing::kUndirected
                            : data::EdgeListing::kEither;
  refuses_or_reads([&] { use(data::import_graph_files(files).graph); });
}

std::vector<std::string> list_seeds() {
  return {"0" + join_parts({"0 1\n1 2\n# note\n", "1 0\n0.5 1\n0 0\n", "a\nb\n-\n", ""}),
          "1" + join_parts({"0\t1\n", "0:1 3:0.5\n1:2\n", "0 1\n1 1\n", "train\ntest\n"}),
          "4" + join_parts({"0,1\n1,0\n", "1\n2\n", "0\n1\n", "train validation\ntest -\n"})};
}

void run_graph(std::string_view input) {
  std::filesystem::create_directories(scratch() / "graph");
  write_scratch("graph/graph.safetensors", input);
  refuses_or_reads([] {
    const data::GraphData graph = data::load_graph(scratch() / "graph");
    use(graph);
    const data::GraphNodes nodes(graph);
    const std::vector<int64_t> first = {0};
    if (nodes.size(data::Split::kTrain) > 0) nodes.batch(data::Split::kTrain, first);
  });
}

std::string graph_seed() {
  write_scratch("e", "0 1\n1 2\n2 3\n3 4\n"), write_scratch("f", "1 0\n0 1\n1 1\n2 0\n0 2\n"),
      write_scratch("l", "a\nb\na\nb\na\n");
  write_scratch("s", "train\nvalidation\ntest\ntrain\n-\n");
  data::save_graph(scratch() / "graph-made", data::import_graph_files({.edges = scratch() / "e",
                                                                       .features = scratch() / "f",
                                                                       .labels = scratch() / "l",
                                                                       .splits = scratch() / "s"})
                                                 .graph);
  return read_scratch("graph-made/graph.safetensors");
}

}  // namespace

std::vector<Target> graph_targets() {
  return {{"graph", "load_graph and GraphNodes", [] { return std::vector<std::string>{graph_seed()}; },
           run_graph},
          {"planetoid", "import_planetoid", [] { return std::vector<std::string>{planetoid_seed()}; },
           run_planetoid},
          {"graphsage", "import_graphsage", graphsage_seeds, run_graphsage},
          {"graph_lists", "import_graph_files", list_seeds, run_lists}};
}

}  // namespace edgewise::fuzz
