// GraphData: a graph, or several, with features and labels of its nodes: what `edgewise data graph` writes
// and data.name = "graph" reads.
//
// The file is safetensors with features.row_offsets, features.col_indices, features.values, edges, labels,
// train_mask, val_mask and test_mask, and graph_offsets where there are several graphs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace edgewise::data {

struct GraphData {
  std::string name;
  int64_t nodes = 0;     // N
  int64_t features = 0;  // F
  int64_t classes = 0;
  // Features as rows of what is not zero: [N + 1] int64, [Z] int32, [Z] float.
  at::Tensor feature_offsets, feature_columns, feature_values;
  // [E, 2] int32, sorted, no loops. Undirected: i < j, once each. Directed: the node that attends, and the
  // one that it attends to.
  at::Tensor edges;
  bool is_directed = false;
  // [N] int32, -1 = none; or [N, classes] bool, any number of labels a node.
  at::Tensor labels;
  at::Tensor train_mask, validation_mask, test_mask;  // [splits, N] bool
  at::Tensor graph_offsets;  // [G + 1] int64: graph g has the nodes from its offset on

  bool has_many_labels() const { return labels.dim() == 2; }
  int64_t splits() const { return train_mask.size(0); }
  int64_t graphs() const { return graph_offsets.size(0) - 1; }
};

// Throws, naming `origin` and the place, unless sizes and dtypes agree, edges are sorted, once each, without
// loops and within one graph, numbers are finite, and no node is in two masks of a split or in one without a
// label.
void check_graph(const GraphData& graph, const std::string& origin);

// The file in a folder that save_graph has written.
std::filesystem::path graph_path(const std::filesystem::path& folder);
// Of such a folder, or of a file, plain or .xz. Checked.
GraphData load_graph(const std::filesystem::path& path);
void save_graph(const std::filesystem::path& folder, const GraphData& graph);

// What tells one graph from another.
struct GraphCounts {
  int64_t edges = 0;     // as they are stored
  int64_t isolated = 0;  // nodes without an edge
  int64_t max_degree = 0, max_degree_node = 0;
  int64_t components = 0, largest_component = 0;
  double homophily = 0;              // edges between nodes of one class, over those between labelled nodes
  std::vector<int64_t> class_sizes;  // of all labelled nodes
};
GraphCounts count_graph(const GraphData& graph);

}  // namespace edgewise::data
