#include <edgewise/data/graphs/graph_nodes.h>

#include <ATen/ATen.h>
#include <edgewise/models/input_graph.h>

#include <algorithm>

#include "data/check_indices.h"

namespace edgewise::data {
namespace {

// Rows of a mask over nodes, of the graphs one after the other: [their nodes] int64.
at::Tensor nodes_of(const GraphData& graph, const std::vector<int64_t>& graphs) {
  std::vector<at::Tensor> parts = {at::empty({0}, at::kLong)};
  for (const int64_t each : graphs)
    parts.push_back(at::arange(graph.graph_offsets[each].item<int64_t>(),
                               graph.graph_offsets[each + 1].item<int64_t>(), at::kLong));
  return at::cat(parts);
}

std::shared_ptr<const InputGraph> input_of(const GraphData& graph, const at::Tensor& nodes) {
  const int64_t count = nodes.size(0);
  const at::Tensor offsets = graph.feature_offsets, first = offsets.index_select(0, nodes),
                   degrees = offsets.index_select(0, nodes + 1) - first;
  const at::Tensor own = at::cat({at::zeros({1}, at::kLong), degrees.cumsum(0)});
  // Entry n of the result is entry first[row] + (n - own[row]) of the file.
  const at::Tensor entries = at::repeat_interleave(first - own.slice(0, 0, count), degrees) +
                             at::arange(own[count].item<int64_t>(), at::kLong);
  SparseMatrix features =
      SparseMatrix::from_csr(graph.features, own, graph.feature_columns.index_select(0, entries),
                             graph.feature_values.index_select(0, entries));
  at::Tensor place = at::full({graph.nodes}, -1, at::kLong);
  place.index_put_({nodes}, at::arange(count, at::kLong));
  at::Tensor edges = place.index({graph.edges.to(at::kLong)});  // [E, 2]
  edges = edges.index({(edges >= 0).all(1)});
  if (!graph.is_directed) edges = at::cat({edges, edges.flip({1})});
  return std::make_shared<InputGraph>(std::move(features), edges);
}

// Features over the sum of their row, which is their size where none is negative.
void normalise(GraphData& graph) {
  const at::Tensor degrees = graph.feature_offsets.diff();
  const at::Tensor rows = at::repeat_interleave(degrees), &values = graph.feature_values;
  const at::Tensor negative = (values < 0).nonzero();
  if (negative.size(0) > 0) {
    const at::Tensor first = negative[0][0];
    TORCH_CHECK_VALUE(false,
                      "graph: expected features of at least 0 with data.normalise = true, which divides "
                      "those of a node by their sum; node ",
                      rows[first].item<int64_t>(), " of ", graph.name, " has feature ",
                      graph.feature_columns[first].item<int64_t>(), " = ", values[first].item<float>(),
                      ". Set data.normalise = false, or data.standardise = true with it");
  }
  const at::Tensor sums = at::zeros({graph.nodes}, at::kFloat).index_add(0, rows, values);
  graph.feature_values = values / at::where(sums == 0, 1.0, sums).to(at::kFloat).index_select(0, rows);
}

// (x - mean) / deviation of every feature, both over the nodes of `train` and with its whole number as
// denominator; a feature that never varies there keeps its scale. All entries are stored afterwards.
void standardise(GraphData& graph, const at::Tensor& train) {
  TORCH_CHECK_VALUE(train.any().item<bool>(),
                    "graph: expected training nodes with data.standardise = true, by "
                    "whose features all are scaled; ",
                    graph.name, " has none in this split");
  TORCH_CHECK_VALUE(
      graph.nodes * graph.features < int64_t{1} << 30,
      "graph: expected data.standardise = false, or fewer features: it stores every one of every "
      "node, which are ",
      graph.nodes, " x ", graph.features);
  at::Tensor dense = at::zeros({graph.nodes, graph.features}, at::kDouble);
  dense.index_put_({at::repeat_interleave(graph.feature_offsets.diff()), graph.feature_columns.to(at::kLong)},
                   graph.feature_values.to(at::kDouble));
  const at::Tensor rows = dense.index({train});
  const at::Tensor mean = rows.mean(0), deviation = (rows - mean).square().mean(0).sqrt();
  dense = (dense - mean) / at::where(deviation == 0, at::ones({}, at::kDouble), deviation);
  graph.feature_offsets = at::arange(graph.nodes + 1) * graph.features;
  graph.feature_columns = at::arange(graph.features, at::kInt).repeat({graph.nodes});
  graph.feature_values = dense.to(at::kFloat).flatten();
}

}  // namespace

GraphNodes::GraphNodes(GraphData graph, const GraphNodesOptions& options)
    : graph_(std::move(graph)), split_(options.split), metric_(options.metric) {
  TORCH_CHECK_VALUE(split_ >= 0 && split_ < graph_.splits(), "graph: expected data.split in [0, ",
                    graph_.splits(), "), the splits of ", graph_.name, "; got ", split_);
  if (graph_.has_many_labels() && metric_ == "accuracy") metric_ = "micro_f1";
  TORCH_CHECK_VALUE(metric_ != "roc_auc" || (graph_.classes == 2 && !graph_.has_many_labels()),
                    "graph: expected data.metric = roc_auc with two classes; ", graph_.name, " has ",
                    graph_.classes);
  TORCH_CHECK_VALUE((metric_ == "micro_f1") == graph_.has_many_labels(), "graph: expected data.metric = ",
                    graph_.has_many_labels() ? "micro_f1, as nodes have any number of labels"
                                             : "accuracy or roc_auc, as nodes have one label",
                    "; got ", metric_);
  TORCH_CHECK_VALUE(!options.normalise || !options.standardise,
                    "graph: expected data.normalise = false with data.standardise = true; got both");
  if (options.normalise) normalise(graph_);
  if (options.standardise) standardise(graph_, mask(Split::kTrain));
  for (const Split each : {Split::kTrain, Split::kValidation, Split::kTest}) {
    const at::Tensor asked = mask(each);
    for (int64_t n = 0; n < graph_.graphs(); ++n)
      if (asked.slice(0, graph_.graph_offsets[n].item<int64_t>(), graph_.graph_offsets[n + 1].item<int64_t>())
              .any()
              .item<bool>())
        examples_[static_cast<size_t>(each)].push_back(n);
  }
}

at::Tensor GraphNodes::mask(Split split) const {
  const at::Tensor& masks = split == Split::kTrain        ? graph_.train_mask
                            : split == Split::kValidation ? graph_.validation_mask
                                                          : graph_.test_mask;
  return masks.select(0, split_);
}

int64_t GraphNodes::size(Split split) const {
  return std::ssize(examples_[static_cast<size_t>(split)]);
}

Batch GraphNodes::make_batch(Split split, const std::vector<int64_t>& graphs) const {
  const at::Tensor nodes = nodes_of(graph_, graphs), asked = mask(split).index_select(0, nodes);
  std::shared_ptr<const InputGraph>& input = inputs_[graphs];
  if (!input) input = input_of(graph_, nodes);
  Batch batch;
  batch.towers.push_back({.tokens = nodes.unsqueeze(0), .graph = input});
  const at::Tensor labels = graph_.labels.index_select(0, nodes);
  if (graph_.has_many_labels()) {
    batch.labels = labels.unsqueeze(0);
    batch.more["asked"] = asked.unsqueeze(0);
  } else {
    batch.labels = labels.to(at::kLong).masked_fill(asked.logical_not(), -1).unsqueeze(0);
  }
  return batch;
}

Batch GraphNodes::batch(Split split, std::span<const int64_t> indices) const {
  check_indices(*this, split, indices);
  std::vector<int64_t> graphs;
  for (const int64_t index : indices)
    graphs.push_back(examples_[static_cast<size_t>(split)][static_cast<size_t>(index)]);
  std::ranges::sort(graphs);
  const std::lock_guard lock(mutex_);
  const auto found = batches_.find({split, graphs});
  if (found != batches_.end()) return found->second;
  Batch batch = make_batch(split, graphs);
  // A few at most: where graphs are drawn anew in every step few of them come again.
  constexpr size_t kMostKept = 8;
  if (batches_.size() >= kMostKept) batches_.clear(), inputs_.clear();
  return batches_[{split, graphs}] = std::move(batch);
}

std::vector<int64_t> GraphNodes::labels(Split split) const {
  const at::Tensor nodes = nodes_of(graph_, examples_[static_cast<size_t>(split)]);
  const at::Tensor labels = graph_.labels.index_select(0, nodes).to(at::kLong);  // [nodes], or with classes
  at::Tensor unasked = mask(split).index_select(0, nodes).logical_not();
  if (graph_.has_many_labels()) unasked = unasked.unsqueeze(1);
  const at::Tensor flat = labels.masked_fill(unasked, -1).flatten().contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

std::vector<Baseline> GraphNodes::baselines(Split split) const {
  if (metric_ != "accuracy") return {};
  const at::Tensor labels = graph_.labels.to(at::kLong);
  const at::Tensor train = labels.masked_select(mask(Split::kTrain)),
                   asked = labels.masked_select(mask(split));
  if (train.numel() == 0 || asked.numel() == 0) return {};
  const auto best = train.bincount({}, graph_.classes).argmax();
  return {{"most frequent label of train", asked.eq(best).to(at::kDouble).mean().item<double>()}};
}

std::string GraphNodes::summary() const {
  const auto count = [&](Split split) { return std::to_string(mask(split).sum().item<int64_t>()); };
  return "the graph " + graph_.name + " of " + std::to_string(graph_.nodes) + " nodes, " +
         std::to_string(graph_.edges.size(0)) + (graph_.is_directed ? " directed" : "") + " edges, " +
         std::to_string(graph_.features) + " features, " + std::to_string(graph_.classes) +
         " classes; asked in training " + count(Split::kTrain) + ", validation " + count(Split::kValidation) +
         ", test " + count(Split::kTest);
}

}  // namespace edgewise::data
