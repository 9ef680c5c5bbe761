#include "data/graphs/graph_parts.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace edgewise::data {
namespace {

template <typename Value>
at::Tensor copied(std::span<const Value> values, at::ScalarType dtype) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, dtype);
  std::ranges::copy(values, static_cast<Value*>(tensor.mutable_data_ptr()));
  return tensor;
}

}  // namespace

at::Tensor tensor_of(std::span<const int64_t> values) {
  return copied(values, at::kLong);
}
at::Tensor tensor_of(std::span<const int32_t> values) {
  return copied(values, at::kInt);
}
at::Tensor tensor_of(std::span<const float> values) {
  return copied(values, at::kFloat);
}
at::Tensor flags_of(std::span<const uint8_t> values, int64_t rows, int64_t columns) {
  return copied(values, at::kBool).view({rows, columns});
}

bool FeatureRows::end_row() {
  std::ranges::sort(row_, {}, [](const auto& entry) { return entry.first; });
  const auto repeated =
      std::ranges::adjacent_find(row_, [](const auto& a, const auto& b) { return a.first == b.first; });
  const bool good = repeated == row_.end();
  for (const auto& [column, value] : row_)
    if (value != 0) columns_.push_back(column), values_.push_back(static_cast<float>(value));
  offsets_.push_back(static_cast<int64_t>(columns_.size()));
  row_.clear();
  return good;
}

void FeatureRows::give(GraphData& graph) const {
  graph.feature_offsets = tensor_of(std::span<const int64_t>(offsets_));
  graph.feature_columns = tensor_of(std::span<const int32_t>(columns_));
  graph.feature_values = tensor_of(std::span<const float>(values_));
}

at::Tensor stored_edges(std::vector<NodePair> pairs, bool is_directed) {
  if (!is_directed)
    for (auto& [i, j] : pairs)
      if (i > j) std::swap(i, j);
  std::erase_if(pairs, [](const NodePair& pair) { return pair.first == pair.second; });
  std::ranges::sort(pairs);
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  std::vector<int32_t> flat;
  flat.reserve(2 * pairs.size());
  for (const auto& [i, j] : pairs) flat.push_back(i), flat.push_back(j);
  return tensor_of(std::span<const int32_t>(flat)).view({static_cast<int64_t>(pairs.size()), 2});
}

}  // namespace edgewise::data
