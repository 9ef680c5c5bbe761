// What the readers of graphs share: tensors of lists, and edges as they are stored.
#pragma once

#include <ATen/core/Tensor.h>
#include <edgewise/data/graphs/graph_data.h>

#include <cstdint>
#include <span>
#include <vector>

namespace edgewise::data {

using NodePair = std::pair<int32_t, int32_t>;

at::Tensor tensor_of(std::span<const int64_t> values);
at::Tensor tensor_of(std::span<const int32_t> values);
at::Tensor tensor_of(std::span<const float> values);
// [rows, columns] of flags, row by row.
at::Tensor flags_of(std::span<const uint8_t> values, int64_t rows, int64_t columns);

// Rows of what is not zero, in the order of columns.
class FeatureRows {
 public:
  void add(int64_t column, double value) { row_.emplace_back(static_cast<int32_t>(column), value); }
  // The end of a row; false when a column occurs twice in it.
  bool end_row();
  int64_t rows() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  void give(GraphData& graph) const;

 private:
  std::vector<std::pair<int32_t, double>> row_;
  std::vector<int64_t> offsets_ = {0};
  std::vector<int32_t> columns_;
  std::vector<float> values_;
};

// Sorted, once each, without loops; undirected ones with the smaller node first.
at::Tensor stored_edges(std::vector<NodePair> pairs, bool is_directed);

}  // namespace edgewise::data
