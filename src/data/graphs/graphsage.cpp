// Graphs in the layout of GraphSAGE, such as PPI, to GraphData.
#include <c10/util/Exception.h>
#include <edgewise/data/graphs/import_graph.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/graphs/graph_parts.h"
#include "data/graphs/npy.h"
#include "data/readers/compressed.h"

namespace edgewise::data {
namespace {

using nlohmann::json;

constexpr int kDeepest = 32;  // ours have four

std::filesystem::path find_file(const std::filesystem::path& folder, const std::string& name,
                                const char* end) {
  const std::filesystem::path path = folder / (name + end);
  const auto found = find_plain_or_xz(path);
  TORCH_CHECK_VALUE(found, "graphsage: expected the file ", path.string(),
                    "; there is none. A graph has NAME-G.json, NAME-class_map.json and NAME-feats.npy, and "
                    "perhaps NAME-id_map.json and NAME-graph_id.npy");
  return *found;
}

json read_json(const std::filesystem::path& file) {
  const std::vector<uint8_t> bytes = read_plain_or_xz(file);
  // What is shown of a value in a message is printed level by level, each a call within the last.
  const auto is_flat = [&](int depth, json::parse_event_t, json&) {
    TORCH_CHECK_VALUE(depth <= kDeepest, file.string(), ": expected JSON of at most ", kDeepest,
                      " levels; found more");
    return true;
  };
  try {
    return json::parse(as_text(bytes), is_flat);
  } catch (const json::exception& error) {
    TORCH_CHECK_VALUE(false, file.string(), ": expected JSON; ", error.what());
  }
}

// Nodes as the file numbers them: by NAME-id_map.json, or by their ids as they are.
class NodeNumbers {
 public:
  NodeNumbers(const std::filesystem::path& folder, const std::string& name, int64_t nodes) : nodes_(nodes) {
    const auto found = find_plain_or_xz(folder / (name + "-id_map.json"));
    if (!found) return;
    map_ = read_json(*found);
    TORCH_CHECK_VALUE(map_.is_object(), found->string(),
                      ": expected an object of numbers by the ids of nodes; "
                      "found ",
                      map_.dump().substr(0, 40));
  }
  int32_t of(const json& id, const std::string& where) const {
    return named(id.is_string() ? id.get<std::string>() : id.dump(), where);
  }
  // Keys of JSON are strings, whatever the ids are.
  int32_t named(const std::string& id, const std::string& where) const {
    int64_t number = -1;
    if (map_.is_object()) {
      const auto found = map_.find(id);
      number = found != map_.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
    } else if (!id.empty() && id.size() < 10 &&
               std::ranges::all_of(id, [](char c) { return c >= '0' && c <= '9'; })) {
      number = std::stoll(id);
    }
    TORCH_CHECK_INDEX(number >= 0 && number < nodes_, where, ": expected a node in [0, ", nodes_, "); found ",
                      id);
    return static_cast<int32_t>(number);
  }

 private:
  int64_t nodes_;
  json map_;
};

const json& list_in(const json& all, const char* key, const std::string& origin) {
  const auto found = all.find(key);
  TORCH_CHECK_VALUE(found != all.end() && found->is_array(), origin, ": expected a list called ", key,
                    "; there is none");
  return *found;
}

// A flag that is missing is not set. Some writers have 0 and 1.
bool flag_in(const json& node, const char* key, const std::string& where) {
  const auto found = node.find(key);
  if (found == node.end()) return false;
  const std::string text = found->dump();
  const bool is_set = text == "true" || text == "1";
  TORCH_CHECK_VALUE(is_set || text == "false" || text == "0", where, ": expected ", key,
                    " to be true or false; found ", text.substr(0, 40));
  return is_set;
}

constexpr int64_t kMostClasses = int64_t{1} << 20;

// A class, or a 0 or 1 for each, of every node.
void read_labels(const std::filesystem::path& file, const NodeNumbers& numbers, GraphData& graph) {
  const json all = read_json(file);
  TORCH_CHECK_VALUE(all.is_object() && !all.empty(), file.string(), ": expected labels by the ids of nodes");
  const bool has_many = all.begin()->is_array();
  graph.classes = has_many ? std::ssize(*all.begin()) : 0;
  for (const auto& [id, label] : all.items())
    TORCH_CHECK_VALUE(label.is_array() == has_many && (!has_many || std::ssize(label) == graph.classes),
                      file.string(), ": expected ",
                      has_many ? c10::str("a 0 or 1 for each of ", graph.classes, " classes") : "a class",
                      " of every node; node ", id.substr(0, 40), " has ", label.dump().substr(0, 40));
  // Before there is room for all labels of all nodes: every node brings its own.
  TORCH_CHECK_VALUE(!has_many || std::ssize(all) == graph.nodes, file.string(), ": expected labels of ",
                    graph.nodes, " nodes; found ", all.size());
  std::vector<uint8_t> flags(has_many ? static_cast<size_t>(graph.nodes * graph.classes) : 0);
  std::vector<int32_t> classes(static_cast<size_t>(graph.nodes), -1);
  std::vector<bool> is_labelled(static_cast<size_t>(graph.nodes));
  for (const auto& [id, label] : all.items()) {
    const auto node = static_cast<size_t>(numbers.named(id, file.string()));
    TORCH_CHECK_VALUE(!is_labelled[node], file.string(), ": node ", id,
                      " has the number of another one that has a label already");
    is_labelled[node] = true;
    if (!has_many) {
      TORCH_CHECK_VALUE(
          label.is_number_integer() && label.get<int64_t>() >= 0 && label.get<int64_t>() < kMostClasses,
          file.string(), ": expected a class of node ", id, ", a whole number below ", kMostClasses,
          "; found ", label.dump().substr(0, 40));
      classes[node] = label.get<int32_t>();
      graph.classes = std::max<int64_t>(graph.classes, classes[node] + 1);
    }
    for (size_t n = 0; has_many && n < label.size(); ++n) {
      const std::string text = label[n].dump();
      const bool is_set = text == "1" || text == "true" || text == "1.0";
      TORCH_CHECK_VALUE(is_set || text == "0" || text == "false" || text == "0.0", file.string(),
                        ": expected a 0 or 1 for every class of node ", id, "; found ", text.substr(0, 40));
      flags[node * label.size() + n] = is_set;
    }
  }
  const auto missing = std::ranges::find(is_labelled, false);
  TORCH_CHECK_VALUE(missing == is_labelled.end(), file.string(), ": expected a label of each of ",
                    graph.nodes, " nodes; node number ", missing - is_labelled.begin(), " has none");
  graph.labels =
      has_many ? flags_of(flags, graph.nodes, graph.classes) : tensor_of(std::span<const int32_t>(classes));
}

std::vector<NodePair> read_links(const json& all, const NodeNumbers& numbers, const std::string& origin) {
  std::vector<NodePair> result;
  const json& links = list_in(all, "links", origin);
  for (size_t n = 0; n < links.size(); ++n) {
    const std::string where = c10::str(origin, ": link ", n);
    TORCH_CHECK_VALUE(links[n].is_object() && links[n].contains("source") && links[n].contains("target"),
                      where, ": expected a source and a target; found ", links[n].dump().substr(0, 40));
    result.emplace_back(numbers.of(links[n]["source"], where), numbers.of(links[n]["target"], where));
  }
  return result;
}

std::vector<int64_t> read_graph_ids(const std::filesystem::path& file, size_t nodes) {
  const NpyArray ids = read_npy(read_plain_or_xz(file), file.string());
  TORCH_CHECK_VALUE(ids.values.size() == nodes, file.string(), ": expected a graph for each of ", nodes,
                    " nodes; found ", ids.values.size());
  std::vector<int64_t> result;
  for (const double id : ids.values) {  // NaN is not at least 0
    TORCH_CHECK_VALUE(id >= 0 && id < 0x1p31 && id == std::floor(id), file.string(),
                      ": expected whole numbers of graphs, of at least 0; node ", result.size(), " has ", id);
    result.push_back(static_cast<int64_t>(id));
  }
  return result;
}

// The graph of every node, counted from 0 in each split, where no file says it. As GAT's authors have it for
// PPI: the connected components of a split; those of one or two nodes belong to its first graph.
std::vector<int64_t> joined_components(const std::vector<NodePair>& links,
                                       const std::vector<int64_t>& splits) {
  std::vector<size_t> parents(splits.size());
  std::iota(parents.begin(), parents.end(), size_t{0});
  const auto root = [&](size_t node) {
    while (parents[node] != node) node = parents[node] = parents[parents[node]];
    return node;
  };
  for (const auto& [i, j] : links) {
    const auto from = static_cast<size_t>(i), to = static_cast<size_t>(j);
    if (splits[from] != splits[to]) continue;
    const size_t one = root(from), other = root(to);
    parents[std::max(one, other)] = std::min(one, other);  // a root is the first node of its component
  }
  std::vector<size_t> sizes(splits.size());
  for (size_t node = 0; node < splits.size(); ++node) ++sizes[root(node)];
  constexpr size_t kLeast = 3;
  std::vector<int64_t> graphs(splits.size());
  for (int64_t split = 0; split < 3; ++split) {
    int64_t next = 0;
    for (size_t node = 0; node < splits.size(); ++node)
      if (splits[node] == split && root(node) == node && sizes[node] >= kLeast) graphs[node] = next++;
  }
  for (size_t node = 0; node < splits.size(); ++node) graphs[node] = graphs[root(node)];
  return graphs;
}

}  // namespace

std::vector<std::string> graphsage_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    for (const std::string end : {"-G.json", "-G.json.xz"})
      if (file.ends_with(end)) names.push_back(file.substr(0, file.size() - end.size()));
  }
  std::ranges::sort(names);
  return names;
}

GraphData import_graphsage(const std::filesystem::path& folder, const std::string& name) {
  const auto graph_file = find_file(folder, name, "-G.json"),
             feature_file = find_file(folder, name, "-feats.npy"),
             class_file = find_file(folder, name, "-class_map.json");
  const json all = read_json(graph_file);
  const std::string origin = graph_file.string();
  const json& nodes = list_in(all, "nodes", origin);
  const NpyArray features = read_npy(read_plain_or_xz(feature_file), feature_file.string());
  TORCH_CHECK_VALUE(features.shape.size() == 2 && features.shape[0] == std::ssize(nodes),
                    feature_file.string(), ": expected features of ", nodes.size(), " nodes, as many as ",
                    origin, " has; found ", features.shape.empty() ? 0 : features.shape[0], " rows");
  GraphData read;
  read.name = name;
  read.nodes = std::ssize(nodes);
  read.features = features.shape[1];
  const NodeNumbers numbers(folder, name, read.nodes);
  read_labels(class_file, numbers, read);
  // 0 train, 1 validation, 2 test.
  std::vector<int64_t> splits(nodes.size(), -1);
  for (size_t n = 0; n < nodes.size(); ++n) {
    const std::string where = c10::str(origin, ": node ", n);
    const json id = nodes[n].is_object() && nodes[n].contains("id") ? nodes[n]["id"] : json(n);
    const auto node = static_cast<size_t>(numbers.of(id, where));
    TORCH_CHECK_VALUE(splits[node] < 0, where, ": the id ", id.dump().substr(0, 40),
                      " has the number of a node before it, ", node);
    const bool validation = flag_in(nodes[n], "val", where), test = flag_in(nodes[n], "test", where);
    TORCH_CHECK_VALUE(!validation || !test, where, ": expected val or test; found both");
    splits[node] = test ? 2 : validation ? 1 : 0;
  }
  const std::vector<NodePair> links = read_links(all, numbers, origin);
  const auto id_file = find_plain_or_xz(folder / (name + "-graph_id.npy"));
  const std::vector<int64_t> graphs =
      id_file ? read_graph_ids(*id_file, nodes.size()) : joined_components(links, splits);
  // Nodes of a graph together, in their order.
  std::vector<size_t> order(nodes.size()), place(nodes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t n) {
    return id_file ? std::pair(graphs[n], splits[n]) : std::pair(splits[n], graphs[n]);
  });
  for (size_t n = 0; n < order.size(); ++n) place[order[n]] = n;
  std::vector<int64_t> offsets;
  FeatureRows rows;
  std::vector<uint8_t> masks[3];
  std::vector<uint8_t> flags;
  std::vector<int32_t> classes;
  for (size_t n = 0; n < order.size(); ++n) {
    const size_t node = order[n];
    if (n == 0 || graphs[node] != graphs[order[n - 1]] || (!id_file && splits[node] != splits[order[n - 1]]))
      offsets.push_back(static_cast<int64_t>(n));
    for (int64_t column = 0; column < read.features; ++column) {
      const double value =
          features.values[node * static_cast<size_t>(read.features) + static_cast<size_t>(column)];
      TORCH_CHECK_VALUE(std::isfinite(value), feature_file.string(), ": feature ", column, " of node ", node,
                        " is not a finite number");
      rows.add(column, value);
    }
    rows.end_row();
    for (int64_t split = 0; split < 3; ++split) masks[split].push_back(splits[node] == split);
    if (!read.has_many_labels()) classes.push_back(read.labels.const_data_ptr<int32_t>()[node]);
    for (int64_t n_class = 0; read.has_many_labels() && n_class < read.classes; ++n_class)
      flags.push_back(
          read.labels.const_data_ptr<bool>()[static_cast<int64_t>(node) * read.classes + n_class]);
  }
  offsets.push_back(read.nodes);
  std::vector<NodePair> pairs;
  for (const auto& [i, j] : links) {
    const auto from = static_cast<size_t>(i), to = static_cast<size_t>(j);
    if (graphs[from] == graphs[to] && splits[from] == splits[to])
      pairs.emplace_back(static_cast<int32_t>(place[from]), static_cast<int32_t>(place[to]));
  }
  GraphData graph;
  graph.name = name;
  graph.nodes = read.nodes, graph.features = read.features, graph.classes = read.classes;
  rows.give(graph);
  graph.edges = stored_edges(std::move(pairs), /*is_directed=*/false);
  graph.labels = read.has_many_labels() ? flags_of(flags, graph.nodes, graph.classes)
                                        : tensor_of(std::span<const int32_t>(classes));
  graph.train_mask = flags_of(masks[0], 1, graph.nodes);
  graph.validation_mask = flags_of(masks[1], 1, graph.nodes);
  graph.test_mask = flags_of(masks[2], 1, graph.nodes);
  graph.graph_offsets = tensor_of(std::span<const int64_t>(offsets));
  check_graph(graph, origin);
  return graph;
}

}  // namespace edgewise::data
