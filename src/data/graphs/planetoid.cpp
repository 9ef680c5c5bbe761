// Planetoid's files to GraphData.
#include <c10/util/Exception.h>
#include <edgewise/data/graphs/import_graph.h>

#include <algorithm>
#include <cmath>

#include "data/graphs/graph_parts.h"
#include "data/graphs/pickle.h"
#include "data/readers/compressed.h"
#include "data/readers/table_lines.h"

namespace edgewise::data {
namespace {

constexpr int64_t kValidationNodes = 500;

std::filesystem::path find_part(const std::filesystem::path& folder, const std::string& name,
                                const char* part) {
  const std::filesystem::path path = folder / ("ind." + name + "." + part);
  const auto found = find_plain_or_xz(path);
  TORCH_CHECK_VALUE(found, "planetoid: expected the file ", path.string(),
                    "; there is none. A graph has eight: x, y, tx, ty, allx, ally, graph and test.index");
  return *found;
}

std::shared_ptr<const PickleValue> read_part(const std::filesystem::path& file) {
  return read_pickle(read_plain_or_xz(file), file.string());
}

PickledMatrix read_matrix(const std::filesystem::path& folder, const std::string& name, const char* part) {
  const auto file = find_part(folder, name, part);
  return pickled_matrix(*read_part(file), file.string());
}

// One-hot rows to classes; a row without a 1 has none.
std::vector<int32_t> read_classes(const std::filesystem::path& folder, const std::string& name,
                                  const char* part, int64_t& classes) {
  const auto file = find_part(folder, name, part);
  const PickledArray array = pickled_array(*read_part(file), file.string());
  TORCH_CHECK_VALUE(array.shape.size() == 2 && array.shape[1] > 0, file.string(),
                    ": expected a row of zeros and a one per node");
  classes = array.shape[1];
  std::vector<int32_t> result;
  for (int64_t row = 0; row < array.shape[0]; ++row) {
    const auto first = array.values.begin() + row * classes;
    const auto one = std::find(first, first + classes, 1.0);
    result.push_back(one == first + classes ? -1 : static_cast<int32_t>(one - first));
    TORCH_CHECK_VALUE(std::count(first, first + classes, 0.0) >= classes - 1, file.string(), ": row ", row,
                      ": expected zeros and at most a one");
  }
  return result;
}

std::vector<int64_t> read_test_index(const std::filesystem::path& folder, const std::string& name) {
  const auto file = find_part(folder, name, "test.index");
  const std::vector<uint8_t> bytes = read_plain_or_xz(file);
  TableLines lines(as_text(bytes), file.string());
  std::vector<int64_t> result;
  for (std::string_view line; lines.next(line);)
    result.push_back(lines.number(line, int64_t{1} << 31, "the number of a node"));
  return result;
}

struct Neighbours {
  std::vector<NodePair> pairs;
  int64_t nodes = 0;
};

Neighbours read_neighbours(const std::filesystem::path& folder, const std::string& name) {
  const auto file = find_part(folder, name, "graph");
  const auto read = read_part(file);
  Neighbours result;
  result.nodes = std::ssize(read->entries);
  TORCH_CHECK_VALUE(result.nodes > 0, file.string(), ": expected a list of neighbours for every node");
  const auto check = [&](const PickleValue& node) {
    TORCH_CHECK_INDEX(
        node.kind == PickleValue::Kind::kNumber && node.number >= 0 && node.number < result.nodes,
        file.string(), ": expected nodes in [0, ", result.nodes, "); found ", node.number);
    return static_cast<int32_t>(node.number);
  };
  for (const auto& [node, list] : read->entries)
    for (const PicklePtr& neighbour : list->items) result.pairs.emplace_back(check(*node), check(*neighbour));
  return result;
}

void add_row(FeatureRows& rows, const PickledMatrix& matrix, int64_t row) {
  for (int64_t n = matrix.offsets[static_cast<size_t>(row)]; n < matrix.offsets[static_cast<size_t>(row) + 1];
       ++n)
    rows.add(matrix.indices[static_cast<size_t>(n)], matrix.values[static_cast<size_t>(n)]);
}

}  // namespace

std::vector<std::string> planetoid_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    for (const std::string end : {".graph", ".graph.xz"})
      if (file.starts_with("ind.") && file.ends_with(end))
        names.push_back(file.substr(4, file.size() - 4 - end.size()));
  }
  std::ranges::sort(names);
  return names;
}

GraphData import_planetoid(const std::filesystem::path& folder, const std::string& name) {
  const Neighbours neighbours = read_neighbours(folder, name);
  const PickledMatrix known = read_matrix(folder, name, "allx"), tested = read_matrix(folder, name, "tx");
  int64_t classes = 0, test_classes = 0, train_classes = 0;
  std::vector<int32_t> labels = read_classes(folder, name, "ally", classes);
  const std::vector<int32_t> test_labels = read_classes(folder, name, "ty", test_classes);
  const auto train_nodes = std::ssize(read_classes(folder, name, "y", train_classes));
  const std::vector<int64_t> test_index = read_test_index(folder, name);

  const std::string origin = (folder / ("ind." + name + ".*")).string();
  TORCH_CHECK_VALUE(known.columns == tested.columns, origin, ": expected as many features in tx as in allx, ",
                    known.columns, "; found ", tested.columns);
  TORCH_CHECK_VALUE(classes == test_classes && classes == train_classes, origin,
                    ": expected as many classes in ty and y as in ally, ", classes, "; found ", test_classes,
                    " and ", train_classes);
  TORCH_CHECK_VALUE(std::ssize(labels) == known.rows, origin, ": expected a label for each of the ",
                    known.rows, " rows of allx; ally has ", labels.size());
  TORCH_CHECK_VALUE(std::ssize(test_labels) == tested.rows && std::ssize(test_index) == tested.rows, origin,
                    ": expected a label and a number for each of the ", tested.rows, " rows of tx; ty has ",
                    test_labels.size(), ", test.index ", test_index.size());
  GraphData graph;
  graph.name = name;
  graph.nodes = neighbours.nodes;
  graph.features = known.columns;
  graph.classes = classes;
  // Which row of tx a node has.
  std::vector<int64_t> test_rows(static_cast<size_t>(graph.nodes), -1);
  for (size_t row = 0; row < test_index.size(); ++row) {
    const int64_t node = test_index[row];
    TORCH_CHECK_INDEX(node >= known.rows && node < graph.nodes, origin, ": line ", row + 1,
                      " of test.index: expected a node in [", known.rows, ", ", graph.nodes, "); found ",
                      node);
    TORCH_CHECK_VALUE(test_rows[static_cast<size_t>(node)] < 0, origin, ": line ", row + 1,
                      " of test.index: node ", node, " occurs twice");
    test_rows[static_cast<size_t>(node)] = static_cast<int64_t>(row);
  }
  TORCH_CHECK_VALUE(train_nodes + kValidationNodes <= known.rows, origin, ": expected at least ",
                    train_nodes + kValidationNodes, " rows in allx, for training and validation; found ",
                    known.rows);
  FeatureRows rows;
  labels.resize(static_cast<size_t>(graph.nodes), -1);
  std::vector<uint8_t> train(labels.size()), validation(labels.size()), test(labels.size());
  for (int64_t node = 0; node < graph.nodes; ++node) {
    const auto n = static_cast<size_t>(node);
    const int64_t row = test_rows[n];
    if (node < known.rows) add_row(rows, known, node);
    if (row >= 0) {
      add_row(rows, tested, row);
      labels[n] = test_labels[static_cast<size_t>(row)];
    }
    TORCH_CHECK_VALUE(rows.end_row(), origin, ": a feature of node ", node, " occurs twice");
    train[n] = node < train_nodes;
    validation[n] = node >= train_nodes && node < train_nodes + kValidationNodes;
    test[n] = row >= 0;
  }
  rows.give(graph);
  graph.edges = stored_edges(neighbours.pairs, /*is_directed=*/false);
  graph.labels = tensor_of(std::span<const int32_t>(labels));
  graph.train_mask = flags_of(train, 1, graph.nodes);
  graph.validation_mask = flags_of(validation, 1, graph.nodes);
  graph.test_mask = flags_of(test, 1, graph.nodes);
  const int64_t whole[] = {0, graph.nodes};
  graph.graph_offsets = tensor_of(std::span<const int64_t>(whole));
  check_graph(graph, origin);
  return graph;
}

}  // namespace edgewise::data
