// Graphs as they are distributed, and one's own, to GraphData.
#pragma once

#include <edgewise/data/graphs/graph_data.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace edgewise::data {

// Cora, Citeseer and Pubmed as Planetoid published them: ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}, of
// which Python wrote all but the last (the pickles of Python 2 with numpy and scipy).
//
// Nodes are those of allx, then those of tx in the order of test.index. Numbers that are missing in
// test.index are nodes without features and without a label (Citeseer has 15). Training nodes are those of y,
// validation the next 500, test those of test.index. Repeated citations and loops are left out.
GraphData import_planetoid(const std::filesystem::path& folder, const std::string& name);
// The NAMEs of which a folder has a file ind.NAME.graph, sorted.
std::vector<std::string> planetoid_names(const std::filesystem::path& folder);

// What a file of edges lists.
enum class EdgeListing {
  kEither,      // every edge once, or every edge in both directions
  kUndirected,  // edges in one direction or in both
  kDirected,    // line "i j": i attends to j
};

// A graph of one's own, in files whose fields are divided by tabs, commas or spaces, plain or .xz.
struct GraphFiles {
  std::filesystem::path edges;     // two nodes a line, counted from 0
  std::filesystem::path features;  // a line per node: numbers, or column:number for those that are not 0
  // A line per node: its class, empty or - without one. With many_labels: a 0 or 1 for every class.
  std::filesystem::path labels;
  // A line per node, a field per split: train, validation, test or -. None: drawn.
  std::optional<std::filesystem::path> splits = {};
  EdgeListing listing = EdgeListing::kEither;
  bool many_labels = false;
  bool skip_faulty = false;   // leave out loops and repeated lines of edges
  double hold_out = 0.2;      // share of every class that is drawn for validation, and for test
  int64_t random_splits = 1;  // how many are drawn
  uint64_t seed = 0;
  std::string name = "graph";
};

struct ImportedGraph {
  GraphData graph;
  int64_t left_out = 0;  // lines of edges
};

// Everything wrong with a line names the file and the line.
ImportedGraph import_graph_files(const GraphFiles& files);

// Graphs in the layout of GraphSAGE, such as the protein graphs of PPI: NAME-G.json (nodes with the flags val
// and test, links), NAME-class_map.json, NAME-feats.npy, and perhaps NAME-id_map.json. NAME-graph_id.npy says
// which graph a node belongs to; without it a graph is a connected component of training, validation or test,
// and those of one or two nodes belong to the first of them, as GAT's authors cut PPI into 24 graphs.
// Edges between graphs, or between the three, are left out, as inductive learning asks.
GraphData import_graphsage(const std::filesystem::path& folder, const std::string& name);
// The NAMEs of which a folder has a file NAME-G.json, sorted.
std::vector<std::string> graphsage_names(const std::filesystem::path& folder);

}  // namespace edgewise::data
