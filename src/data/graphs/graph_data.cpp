#include <edgewise/data/graphs/graph_data.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <edgewise/io/safetensors.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "data/graphs/graph_parts.h"
#include "data/readers/compressed.h"
#include "data/readers/table_lines.h"

namespace edgewise::data {
namespace {

constexpr const char* kUndirected = "undirected, once, i<j, no self-loops";
constexpr const char* kDirected = "directed: a node, and the one that it attends to; no self-loops";

void check_tensor(const std::string& origin, const char* name, const at::Tensor& tensor, at::ScalarType dtype,
                  at::IntArrayRef sizes) {
  bool good = tensor.defined() && tensor.scalar_type() == dtype && tensor.is_contiguous() &&
              tensor.dim() == static_cast<int64_t>(sizes.size());
  for (size_t n = 0; good && n < sizes.size(); ++n)
    good = sizes[n] < 0 || tensor.size(static_cast<int64_t>(n)) == sizes[n];
  TORCH_CHECK_VALUE(good, origin, ": expected ", name, " as ", dtype, " ", sizes, " (-1: any number); found ",
                    tensor.defined() ? c10::str(tensor.scalar_type(), " ", tensor.sizes()) : "none");
}

void check_offsets(const std::string& origin, const char* name, const at::Tensor& offsets, int64_t last) {
  const int64_t* const begin = offsets.const_data_ptr<int64_t>();
  const int64_t count = offsets.size(0);
  TORCH_CHECK_VALUE(begin[0] == 0 && begin[count - 1] == last, origin, ": expected ", name, " from 0 to ",
                    last, "; found ", begin[0], " to ", begin[count - 1]);
  for (int64_t n = 1; n < count; ++n)
    TORCH_CHECK_VALUE(begin[n - 1] <= begin[n], origin, ": ", name, " falls from ", begin[n - 1], " to ",
                      begin[n], " at place ", n);
}

void check_features(const GraphData& graph, const std::string& origin) {
  check_tensor(origin, "features.row_offsets", graph.feature_offsets, at::kLong, {graph.nodes + 1});
  check_tensor(origin, "features.col_indices", graph.feature_columns, at::kInt, {-1});
  const int64_t count = graph.feature_columns.size(0);
  check_tensor(origin, "features.values", graph.feature_values, at::kFloat, {count});
  check_offsets(origin, "features.row_offsets", graph.feature_offsets, count);
  const int64_t* const offsets = graph.feature_offsets.const_data_ptr<int64_t>();
  const int32_t* const columns = graph.feature_columns.const_data_ptr<int32_t>();
  const float* const values = graph.feature_values.const_data_ptr<float>();
  for (int64_t node = 0; node < graph.nodes; ++node)
    for (int64_t n = offsets[node]; n < offsets[node + 1]; ++n) {
      TORCH_CHECK_INDEX(columns[n] >= 0 && columns[n] < graph.features, origin, ": expected features in [0, ",
                        graph.features, "); node ", node, " has feature ", columns[n]);
      TORCH_CHECK_VALUE(n == offsets[node] || columns[n - 1] < columns[n], origin,
                        ": expected the features of a node in order, once each; node ", node, " has feature ",
                        columns[n], " behind feature ", columns[n - 1]);
      TORCH_CHECK_VALUE(std::isfinite(values[n]), origin, ": feature ", columns[n], " of node ", node,
                        " is not a finite number");
    }
}

void check_edges(const GraphData& graph, const std::string& origin) {
  check_tensor(origin, "edges", graph.edges, at::kInt, {-1, 2});
  const int32_t* const pairs = graph.edges.const_data_ptr<int32_t>();
  const int64_t* const graphs = graph.graph_offsets.const_data_ptr<int64_t>();
  for (int64_t e = 0; e < graph.edges.size(0); ++e) {
    const int32_t i = pairs[2 * e], j = pairs[2 * e + 1];
    TORCH_CHECK_INDEX(i >= 0 && j >= 0 && i < graph.nodes && j < graph.nodes, origin,
                      ": expected edges between nodes in [0, ", graph.nodes, "); edge ", e, " is ", i, " ",
                      j);
    TORCH_CHECK_VALUE(i != j, origin, ": edge ", e, " joins node ", i,
                      " to itself; leave it out: attention adds a loop to every node");
    TORCH_CHECK_VALUE(graph.is_directed || i < j, origin,
                      ": expected undirected edges with the smaller node first; edge ", e, " is ", i, " ", j);
    TORCH_CHECK_VALUE(e == 0 || std::pair(pairs[2 * e - 2], pairs[2 * e - 1]) < std::pair(i, j), origin,
                      ": expected sorted edges, once each; edge ", e, " is ", i, " ", j,
                      ", the one before it ", pairs[2 * e - 2], " ", pairs[2 * e - 1]);
    const int64_t* const of = std::upper_bound(graphs, graphs + graph.graph_offsets.size(0), i);
    TORCH_CHECK_VALUE(j >= of[-1] && j < of[0], origin, ": edge ", e, " joins nodes ", i, " and ", j,
                      " of different graphs");
  }
}

void check_labels(const GraphData& graph, const std::string& origin) {
  if (graph.has_many_labels())
    return check_tensor(origin, "labels", graph.labels, at::kBool, {graph.nodes, graph.classes});
  check_tensor(origin, "labels", graph.labels, at::kInt, {graph.nodes});
  const int32_t* const labels = graph.labels.const_data_ptr<int32_t>();
  for (int64_t node = 0; node < graph.nodes; ++node)
    TORCH_CHECK_VALUE(labels[node] >= -1 && labels[node] < graph.classes, origin, ": expected labels in [0, ",
                      graph.classes, "), or -1 for none; node ", node, " has ", labels[node]);
}

void check_masks(const GraphData& graph, const std::string& origin) {
  const std::pair<const char*, const at::Tensor*> masks[] = {{"train_mask", &graph.train_mask},
                                                             {"val_mask", &graph.validation_mask},
                                                             {"test_mask", &graph.test_mask}};
  const bool has_splits = graph.train_mask.defined() && graph.train_mask.dim() == 2;
  const int64_t splits = has_splits ? graph.train_mask.size(0) : -1;
  for (const auto& [name, mask] : masks) check_tensor(origin, name, *mask, at::kBool, {splits, graph.nodes});
  TORCH_CHECK_VALUE(splits > 0, origin, ": expected masks [splits, nodes] of one split at least; found none");
  const int32_t* const labels = graph.has_many_labels() ? nullptr : graph.labels.const_data_ptr<int32_t>();
  std::vector<const char*> taken(static_cast<size_t>(splits * graph.nodes));
  for (const auto& [name, mask] : masks) {
    const bool* const flags = mask->const_data_ptr<bool>();
    for (size_t n = 0; n < taken.size(); ++n) {
      if (!flags[n]) continue;
      const auto node = static_cast<int64_t>(n) % graph.nodes, split = static_cast<int64_t>(n) / graph.nodes;
      TORCH_CHECK_VALUE(!taken[n], origin, ": node ", node, " is in ", taken[n], " and in ", name,
                        " of split ", split, "; a node may be in one of them");
      TORCH_CHECK_VALUE(!labels || labels[node] >= 0, origin, ": node ", node, " is in ", name, " of split ",
                        split, " but has no label");
      taken[n] = name;
    }
  }
}

// A safetensors file in the bytes of a compressed one, for a reader that reads files.
io::TensorFile load_tensors(const std::filesystem::path& found) {
  if (found.extension() != ".xz") return io::load_safetensors(found);
  const std::vector<uint8_t> bytes = read_plain_or_xz(found);
  std::string name = (std::filesystem::temp_directory_path() / "edgewise-graph-XXXXXX").string();
  const int descriptor = ::mkstemp(name.data());
  TORCH_CHECK_VALUE(descriptor >= 0, found.string(), ": expected a folder for temporary files at ", name);
  struct Remover {
    const std::string& name;
    ~Remover() { std::remove(name.c_str()); }
  } const remover{name};
  std::FILE* const file = ::fdopen(descriptor, "wb");
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  TORCH_CHECK_VALUE(std::fclose(file) == 0 && written, found.string(), ": no room for its contents in ",
                    name);
  try {
    return io::load_safetensors(name);
  } catch (const c10::ValueError& error) {
    TORCH_CHECK_VALUE(false, found.string(), ", decompressed: ", error.what_without_backtrace());
  }
}

int64_t number_in(const io::TensorFile& file, const char* key, const std::string& origin) {
  const auto found = file.metadata.find(key);
  char* end = nullptr;
  const int64_t value = found == file.metadata.end() ? -1 : std::strtoll(found->second.c_str(), &end, 10);
  TORCH_CHECK_VALUE(value >= 0 && *end == 0 && value < int64_t{1} << 31, origin,
                    ": expected a whole number called ", key, " in its metadata; found ",
                    found == file.metadata.end() ? "none" : found->second);
  return value;
}

}  // namespace

void check_graph(const GraphData& graph, const std::string& origin) {
  TORCH_CHECK_VALUE(graph.nodes > 0 && graph.classes > 0, origin, ": expected nodes and classes; found ",
                    graph.nodes, " and ", graph.classes);
  check_tensor(origin, "graph_offsets", graph.graph_offsets, at::kLong, {-1});
  TORCH_CHECK_VALUE(graph.graph_offsets.size(0) > 1, origin, ": expected at least one graph");
  check_offsets(origin, "graph_offsets", graph.graph_offsets, graph.nodes);
  check_features(graph, origin);
  check_edges(graph, origin);
  check_labels(graph, origin);
  check_masks(graph, origin);
}

std::filesystem::path graph_path(const std::filesystem::path& folder) {
  return folder / "graph.safetensors";
}

GraphData load_graph(const std::filesystem::path& path) {
  const std::filesystem::path file_path = std::filesystem::is_directory(path) ? graph_path(path) : path;
  const std::string origin = file_path.string();
  TORCH_CHECK_VALUE(std::filesystem::exists(file_path), "expected a graph in ", origin,
                    "; there is none. Make it with: edgewise data graph --from SOURCE --out ",
                    std::filesystem::is_directory(path) ? path.string() : "DATA");
  const io::TensorFile file = load_tensors(file_path);
  const auto tensor = [&](const char* name) {
    const auto found = file.tensors.find(name);
    TORCH_CHECK_VALUE(found != file.tensors.end(), origin, ": expected a tensor called ", name,
                      "; there is none");
    return found->second;
  };
  GraphData graph;
  const auto named = file.metadata.find("name");
  graph.name = named == file.metadata.end() ? file_path.stem().string() : named->second;
  graph.nodes = number_in(file, "nodes", origin);
  graph.features = number_in(file, "feature_dim", origin);
  graph.classes = number_in(file, "classes", origin);
  graph.feature_offsets = tensor("features.row_offsets");
  graph.feature_columns = tensor("features.col_indices");
  graph.feature_values = tensor("features.values");
  graph.edges = tensor("edges");
  const auto kind = file.metadata.find("edges");
  // Files of others may say nothing, or begin as ours do: "undirected, once", "directed".
  const std::string edges = kind == file.metadata.end() ? "undirected" : kind->second;
  graph.is_directed = edges.starts_with("directed");
  TORCH_CHECK_VALUE(graph.is_directed || edges.starts_with("undirected"), origin,
                    ": expected edges in its metadata to be undirected or directed; found ", shown(edges));
  graph.labels = tensor("labels");
  if (graph.labels.dim() == 2) graph.labels = graph.labels != 0;
  const auto mask = [&](const char* name) { return tensor(name) != 0; };
  graph.train_mask = mask("train_mask");
  graph.validation_mask = mask("val_mask");
  graph.test_mask = mask("test_mask");
  const int64_t whole[] = {0, graph.nodes};
  graph.graph_offsets = file.tensors.contains("graph_offsets") ? tensor("graph_offsets")
                                                               : tensor_of(std::span<const int64_t>(whole));
  check_graph(graph, origin);
  return graph;
}

void save_graph(const std::filesystem::path& folder, const GraphData& graph) {
  check_graph(graph, "save_graph");
  io::TensorFile file;
  file.tensors = {{"features.row_offsets", graph.feature_offsets},
                  {"features.col_indices", graph.feature_columns},
                  {"features.values", graph.feature_values},
                  {"edges", graph.edges},
                  {"labels", graph.has_many_labels() ? graph.labels.to(at::kByte) : graph.labels},
                  {"train_mask", graph.train_mask.to(at::kByte)},
                  {"val_mask", graph.validation_mask.to(at::kByte)},
                  {"test_mask", graph.test_mask.to(at::kByte)}};
  if (graph.graphs() > 1) file.tensors["graph_offsets"] = graph.graph_offsets;
  file.metadata = {{"name", graph.name},
                   {"nodes", std::to_string(graph.nodes)},
                   {"feature_dim", std::to_string(graph.features)},
                   {"classes", std::to_string(graph.classes)},
                   {"edges", graph.is_directed ? kDirected : kUndirected},
                   {"labels", graph.has_many_labels() ? "any number a node" : "-1 = unlabelled"},
                   {"masks", "[splits, nodes]"}};
  std::filesystem::create_directories(folder);
  io::save_safetensors(graph_path(folder), file);
}

GraphCounts count_graph(const GraphData& graph) {
  const auto nodes = static_cast<size_t>(graph.nodes);
  const int32_t* const pairs = graph.edges.const_data_ptr<int32_t>();
  const int32_t* const labels = graph.has_many_labels() ? nullptr : graph.labels.const_data_ptr<int32_t>();
  GraphCounts counts;
  counts.edges = graph.edges.size(0);
  std::vector<int64_t> degrees(nodes), parents(nodes);
  std::iota(parents.begin(), parents.end(), 0);
  const auto root = [&](int64_t node) {
    while (parents[static_cast<size_t>(node)] != node) {
      int64_t& parent = parents[static_cast<size_t>(node)];
      parent = parents[static_cast<size_t>(parent)];
      node = parent;
    }
    return node;
  };
  int64_t labelled = 0, alike = 0;
  for (int64_t e = 0; e < counts.edges; ++e) {
    const int32_t i = pairs[2 * e], j = pairs[2 * e + 1];
    ++degrees[static_cast<size_t>(i)], ++degrees[static_cast<size_t>(j)];
    parents[static_cast<size_t>(root(i))] = root(j);
    if (!labels || labels[i] < 0 || labels[j] < 0) continue;
    ++labelled;
    alike += labels[i] == labels[j];
  }
  counts.homophily = labelled > 0 ? static_cast<double>(alike) / static_cast<double>(labelled) : 0;
  counts.isolated = std::ranges::count(degrees, 0);
  const auto top = std::ranges::max_element(degrees);
  counts.max_degree = *top, counts.max_degree_node = top - degrees.begin();
  std::vector<int64_t> sizes(nodes);
  for (int64_t node = 0; node < graph.nodes; ++node) ++sizes[static_cast<size_t>(root(node))];
  counts.components = graph.nodes - std::ranges::count(sizes, 0);
  counts.largest_component = *std::ranges::max_element(sizes);
  counts.class_sizes.assign(static_cast<size_t>(graph.classes), 0);
  for (int64_t node = 0; labels && node < graph.nodes; ++node)
    if (labels[node] >= 0) ++counts.class_sizes[static_cast<size_t>(labels[node])];
  if (!labels)
    for (int64_t n = 0; n < graph.labels.numel(); ++n)
      counts.class_sizes[static_cast<size_t>(n % graph.classes)] += graph.labels.const_data_ptr<bool>()[n];
  return counts;
}

}  // namespace edgewise::data
