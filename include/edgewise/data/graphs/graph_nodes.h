// GraphNodes: the nodes of a graph with their labels as a data set. An example is a graph: of one graph, as
// in Cora, training, validation and test all read the whole of it, and differ in the nodes that are asked.
//
// A batch has one item: its graphs side by side, with tokens that number the nodes, and labels [1, N], -1
// where nobody asks. Nodes with many labels: labels [1, N, classes] bool, and more["asked"] [1, N] bool.
#pragma once

#include <edgewise/data/dataset.h>
#include <edgewise/data/graphs/graph_data.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace edgewise::data {

struct GraphNodesOptions {
  int64_t split = 0;         // which of the file's splits
  bool normalise = true;     // the features of a node sum to 1; none may be negative
  bool standardise = false;  // in its place: mean 0 and deviation 1 over the training nodes, each feature
  std::string metric = "accuracy";  // or roc_auc, of two classes; nodes with many labels: micro_f1
};

class GraphNodes : public Dataset {
 public:
  explicit GraphNodes(GraphData graph, const GraphNodesOptions& options = {});

  std::string name() const override { return "graph"; }
  int64_t size(Split split) const override;  // graphs with a node of this split
  int64_t vocabulary() const override { return graph_.nodes; }
  int64_t classes() const override { return graph_.classes; }
  int64_t max_length() const override { return graph_.nodes; }
  int64_t features() const override { return graph_.features; }
  Batch batch(Split split, std::span<const int64_t> indices) const override;
  std::vector<Baseline> baselines(Split split) const override;
  std::string summary() const override;

  const GraphData& graph() const { return graph_; }
  const std::string& metric() const { return metric_; }
  // The labels of all nodes of a split's graphs, in the order of their batches, or of nodes with many labels
  // those of all pairs of a node and a class: -1 where nobody asks.
  std::vector<int64_t> labels(Split split) const;

 private:
  at::Tensor mask(Split split) const;  // [N]
  Batch make_batch(Split split, const std::vector<int64_t>& graphs) const;

  GraphData graph_;
  int64_t split_;
  std::string metric_;
  std::array<std::vector<int64_t>, 3> examples_;  // of each split: graphs
  mutable std::mutex mutex_;
  // The last ones made, as the whole of a graph comes again in every step: by split and graphs. Written with
  // the mutex only: batches are also made ahead, in another thread.
  mutable std::map<std::pair<Split, std::vector<int64_t>>, Batch> batches_;
  mutable std::map<std::vector<int64_t>, std::shared_ptr<const InputGraph>> inputs_;
};

}  // namespace edgewise::data
