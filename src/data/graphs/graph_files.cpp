// A graph of one's own: lines of text to GraphData.
#include <c10/util/Exception.h>
#include <edgewise/data/graphs/import_graph.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "data/graphs/graph_parts.h"
#include "data/readers/compressed.h"
#include "data/readers/table_lines.h"

namespace edgewise::data {
namespace {

// The lines of a file, as fields.
class FieldLines {
 public:
  explicit FieldLines(const std::filesystem::path& path)
      : bytes_(read(path)), lines_(without_mark(as_text(bytes_)), path) {}

  bool next() {
    std::string_view line;
    if (!lines_.next(line)) return false;
    fields.clear();
    for (size_t begin = 0; begin < line.size();) {
      const size_t end = std::min(line.find_first_of("\t, ", begin), line.size());
      if (end > begin) fields.push_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    ++line_number;
    return true;
  }
  // A number that fp32 can hold.
  double number(std::string_view field, const char* what) const {
    double value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() ||
        !std::isfinite(static_cast<float>(value)))
      lines_.fail("expected ", what, ", a finite number within 3e38; found ", shown(field));
    return value;
  }
  const TableLines& lines() const { return lines_; }

  std::vector<std::string_view> fields;
  int64_t line_number = 0;

 private:
  // Some editors begin a text with a mark of UTF-8.
  static std::string_view without_mark(std::string_view text) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    return text;
  }
  static std::vector<uint8_t> read(const std::filesystem::path& path) {
    const auto found = find_plain_or_xz(path);
    TORCH_CHECK_VALUE(found, "data graph: expected the file ", path.string(), "; there is none");
    return read_plain_or_xz(*found);
  }

  std::vector<uint8_t> bytes_;
  TableLines lines_;
};

// ---- labels ----

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

void read_classes(const GraphFiles& files, GraphData& graph) {
  FieldLines lines(files.labels);
  std::vector<std::string> names;
  while (lines.next()) {
    if (lines.fields.size() > 1)
      lines.lines().fail("expected the class of a node, or nothing; found ", lines.fields.size(), " fields");
    names.emplace_back(lines.fields.empty() || lines.fields[0] == "-" ? "" : lines.fields[0]);
  }
  std::vector<std::string> classes(names);
  std::ranges::sort(classes);
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  std::erase(classes, "");
  if (std::ranges::all_of(classes, is_number))
    std::ranges::sort(classes, {}, [](const std::string& name) { return std::stol(name); });
  graph.nodes = std::ssize(names);
  graph.classes = std::ssize(classes);
  TORCH_CHECK_VALUE(graph.classes > 1, files.labels.string(),
                    ": expected nodes of two classes at least; found ", graph.classes, " among ", graph.nodes,
                    " nodes");
  std::map<std::string, int32_t> places;
  for (size_t n = 0; n < classes.size(); ++n) places[classes[n]] = static_cast<int32_t>(n);
  std::vector<int32_t> labels;
  for (const std::string& name : names) labels.push_back(name.empty() ? -1 : places.at(name));
  graph.labels = tensor_of(std::span<const int32_t>(labels));
}

void read_many_labels(const GraphFiles& files, GraphData& graph) {
  FieldLines lines(files.labels);
  std::vector<uint8_t> flags;
  while (lines.next()) {
    if (graph.nodes++ == 0) graph.classes = std::ssize(lines.fields);
    if (std::ssize(lines.fields) != graph.classes || graph.classes == 0)
      lines.lines().fail("expected a 0 or 1 for each of ", graph.classes, " classes; found ",
                         lines.fields.size(), " fields");
    for (const std::string_view field : lines.fields)
      flags.push_back(static_cast<uint8_t>(lines.lines().number(field, 2, "a label")));
  }
  TORCH_CHECK_VALUE(graph.nodes > 0, files.labels.string(), ": expected a line per node; the file is empty");
  graph.labels = flags_of(flags, graph.nodes, graph.classes);
}

// ---- features ----

constexpr int64_t kMostFeatures = (int64_t{1} << 31) - 1;  // what a graph's file can say

void read_features(const GraphFiles& files, GraphData& graph) {
  FieldLines lines(files.features);
  FeatureRows rows;
  int64_t dense = -1;  // numbers in the first line
  bool has_columns = false;
  while (lines.next()) {
    const auto with_columns =
        std::ranges::count_if(lines.fields, [](auto field) { return field.find(':') != field.npos; });
    if (with_columns != 0 && with_columns != std::ssize(lines.fields))
      lines.lines().fail("expected numbers alone, or column:number throughout; found ", with_columns,
                         " with a column among ", lines.fields.size());
    for (size_t n = 0; n < lines.fields.size(); ++n) {
      const std::string_view field = lines.fields[n];
      const size_t colon = field.find(':');
      const bool has_column = colon != std::string_view::npos;
      if (has_column && dense > 0)
        lines.lines().fail("expected numbers alone, as in the lines before; found ", shown(field));
      has_columns = has_columns || has_column;
      if (has_columns && !has_column)
        lines.lines().fail("expected column:number, as in the lines before; found ", shown(field));
      const int64_t column = has_column
                                 ? lines.lines().number(field.substr(0, colon), kMostFeatures, "a column")
                                 : static_cast<int64_t>(n);
      rows.add(column, lines.number(field.substr(has_column ? colon + 1 : 0), "a feature"));
      graph.features = std::max(graph.features, column + 1);
    }
    if (!has_columns && !lines.fields.empty()) {
      if (dense < 0) dense = std::ssize(lines.fields);
      if (std::ssize(lines.fields) != dense)
        lines.lines().fail("expected ", dense, " features, as in the lines before; found ",
                           lines.fields.size());
    }
    if (!rows.end_row()) lines.lines().fail("a column occurs twice");
  }
  TORCH_CHECK_VALUE(rows.rows() == graph.nodes, files.features.string(), ": expected the features of ",
                    graph.nodes, " nodes, as many as ", files.labels.string(), " has lines; found ",
                    rows.rows(), " lines, none for node ", rows.rows());
  TORCH_CHECK_VALUE(graph.features > 0, files.features.string(), ": expected features; found none");
  rows.give(graph);
}

// ---- edges ----

int64_t read_edges(const GraphFiles& files, GraphData& graph) {
  FieldLines lines(files.edges);
  std::map<NodePair, int64_t> seen;  // with their lines
  int64_t left_out = 0;
  while (lines.next()) {
    if (lines.fields.empty() || lines.fields[0].starts_with('#')) continue;
    if (lines.fields.size() != 2)
      lines.lines().fail("expected two nodes; found ", lines.fields.size(), " fields");
    const auto node = [&](size_t n) {
      return static_cast<int32_t>(
          lines.lines().number(lines.fields[n], graph.nodes, "a node, counted from 0"));
    };
    const NodePair pair{node(0), node(1)};
    if (pair.first == pair.second) {
      if (!files.skip_faulty)
        lines.lines().fail(
            "node ", pair.first,
            " is joined to itself; attention adds a loop to every node. Remove the line, or say "
            "--skip-faulty");
      ++left_out;
    } else if (const auto [found, is_new] = seen.emplace(pair, lines.line_number); !is_new) {
      if (!files.skip_faulty)
        lines.lines().fail("the edge ", pair.first, " ", pair.second, " has been listed in line ",
                           found->second, "; remove the line, or say --skip-faulty");
      ++left_out;
    }
  }
  graph.is_directed = files.listing == EdgeListing::kDirected;
  std::vector<NodePair> pairs;
  const NodePair *one_way = nullptr, *both_ways = nullptr;
  for (const auto& [pair, line] : seen) {
    (seen.contains({pair.second, pair.first}) ? both_ways : one_way) = &pair;
    pairs.push_back(pair);
  }
  TORCH_CHECK_VALUE(files.listing != EdgeListing::kEither || !one_way || !both_ways, files.edges.string(),
                    ":", seen.at(one_way ? *one_way : *both_ways), ": the edge ", one_way->first, " ",
                    one_way->second, " is listed in one direction; ", both_ways->first, " ",
                    both_ways->second, " (line ", seen.at(*both_ways),
                    ") is in both. Say --undirected if one is enough, or --directed");
  graph.edges = stored_edges(std::move(pairs), graph.is_directed);
  return left_out;
}

// ---- splits ----

void read_splits(const GraphFiles& files, GraphData& graph) {
  FieldLines lines(*files.splits);
  std::vector<std::vector<std::string>> rows;
  while (lines.next()) {
    rows.emplace_back(lines.fields.begin(), lines.fields.end());
    if (rows.back().size() != rows.front().size() || rows.back().empty())
      lines.lines().fail("expected ", rows.front().size(), " splits, as in the first line; found ",
                         rows.back().size());
    for (const std::string& field : rows.back())
      if (field != "train" && field != "validation" && field != "test" && field != "-")
        lines.lines().fail("expected train, validation, test or -; found ", shown(field));
  }
  TORCH_CHECK_VALUE(std::ssize(rows) == graph.nodes, files.splits->string(), ": expected a line for each of ",
                    graph.nodes, " nodes; found ", rows.size());
  const auto splits = std::ssize(rows.front());
  const auto mask = [&](const char* name) {
    std::vector<uint8_t> flags;
    for (int64_t split = 0; split < splits; ++split)
      for (const auto& row : rows) flags.push_back(row[static_cast<size_t>(split)] == name);
    return flags_of(flags, splits, graph.nodes);
  };
  graph.train_mask = mask("train");
  graph.validation_mask = mask("validation");
  graph.test_mask = mask("test");
}

// The same share of every class; of nodes with many labels, of all.
void draw_splits(const GraphFiles& files, GraphData& graph) {
  const auto nodes = static_cast<size_t>(graph.nodes);
  std::vector<uint8_t> train, validation, test;
  for (int64_t split = 0; split < files.random_splits; ++split) {
    std::mt19937_64 random(files.seed * 1'000'003 + static_cast<uint64_t>(split));
    std::vector<std::vector<size_t>> groups(graph.has_many_labels() ? 1 : static_cast<size_t>(graph.classes));
    for (size_t node = 0; node < nodes; ++node) {
      const int32_t label = graph.has_many_labels() ? 0 : graph.labels.const_data_ptr<int32_t>()[node];
      if (label >= 0) groups[static_cast<size_t>(label)].push_back(node);
    }
    const size_t first = train.size();
    for (auto* flags : {&train, &validation, &test}) flags->resize(first + nodes);
    for (std::vector<size_t>& group : groups) {
      for (size_t n = group.size(); n > 1; --n) std::swap(group[n - 1], group[random() % n]);
      // Of a class with few nodes one for each of the three, training first.
      const auto rounded =
          static_cast<size_t>(std::lround(files.hold_out * static_cast<double>(group.size())));
      const size_t held = std::clamp<size_t>(rounded, group.size() >= 3 ? 1 : 0,
                                             (group.size() - (group.empty() ? 0 : 1)) / 2);
      for (size_t n = 0; n < group.size(); ++n)
        (n < held ? validation : n < 2 * held ? test : train)[first + group[n]] = 1;
    }
  }
  for (const auto& [name, flags] : {std::pair("validation", &validation), {"test", &test}})
    TORCH_CHECK_VALUE(std::ranges::find(*flags, 1) != flags->end(), files.labels.string(),
                      ": expected a class of three nodes at least, of which one is drawn for ", name,
                      "; found none among ", graph.classes, " classes. Name splits with --splits");
  graph.train_mask = flags_of(train, files.random_splits, graph.nodes);
  graph.validation_mask = flags_of(validation, files.random_splits, graph.nodes);
  graph.test_mask = flags_of(test, files.random_splits, graph.nodes);
}

}  // namespace

ImportedGraph import_graph_files(const GraphFiles& files) {
  TORCH_CHECK_VALUE(files.hold_out > 0 && files.hold_out < 0.5 && files.random_splits > 0,
                    "data graph: expected a share in (0, 0.5) to hold out and at least one split; got ",
                    files.hold_out, " and ", files.random_splits);
  ImportedGraph result;
  GraphData& graph = result.graph;
  graph.name = files.name;
  files.many_labels ? read_many_labels(files, graph) : read_classes(files, graph);
  read_features(files, graph);
  result.left_out = read_edges(files, graph);
  files.splits ? read_splits(files, graph) : draw_splits(files, graph);
  const int64_t whole[] = {0, graph.nodes};
  graph.graph_offsets = tensor_of(std::span<const int64_t>(whole));
  check_graph(graph, files.labels.string());
  return result;
}

}  // namespace edgewise::data
