#include "train/snapshot/head_edges.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include <ATen/Functions.h>
#include <c10/util/Half.h>

#include <edgewise/graph/square_lists.h>

namespace edgewise::train {
namespace {

using graph::kSquare;

at::Tensor as_floats(const at::Tensor& heads, int64_t head) {  // [1, H, N, D] -> [N, D]
  return heads[0][head].to(at::kCPU, at::kFloat).contiguous();
}

// q_i . k_j / sqrt(D) of one head, or nothing where scores are not those products.
class Scores {
 public:
  Scores(const AttentionView& view, int64_t head) {
    if (!view.query.defined()) return;
    query_ = as_floats(view.query, head);
    key_ = as_floats(view.key, head);
    scale_ = 1 / std::sqrt(static_cast<double>(query_.size(1)));
  }
  bool exist() const { return query_.defined(); }

  // In place of each key its share of the query's attention.
  void softmax(int64_t query, std::span<const int32_t> keys, std::vector<double>& weights) const {
    weights.resize(keys.size());
    const int64_t dim = query_.size(1);
    const float* const q = query_.const_data_ptr<float>() + query * dim;
    const float* const all = key_.const_data_ptr<float>();
    double highest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t e = 0; e < keys.size(); ++e) {
      const float* const k = all + keys[e] * dim;
      double product = 0;
      for (int64_t d = 0; d < dim; ++d) product += static_cast<double>(q[d]) * static_cast<double>(k[d]);
      weights[e] = product * scale_;
      highest = std::max(highest, weights[e]);
    }
    for (double& weight : weights) sum += weight = std::exp(weight - highest);
    for (double& weight : weights) weight /= sum;
  }

 private:
  at::Tensor query_, key_;  // [N, D] float
  double scale_ = 1;
};

// Rows of a head as they are found, cut to the heaviest where they are too many, as tensors in the end.
class Collector {
 public:
  Collector(int64_t rows, int64_t chosen, int64_t most) {
    head_.chosen = chosen;
    if (chosen > most)
      row_limit_ = static_cast<size_t>(std::max<int64_t>(most / std::max<int64_t>(rows, 1), 1));
  }

  void add_row(std::span<const int32_t> keys, std::span<const double> weights) {
    const size_t kept = std::min(keys.size(), row_limit_);
    order_.resize(keys.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    if (kept < keys.size()) {
      if (!weights.empty())
        std::nth_element(
            order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(kept), order_.end(),
            [&](size_t a, size_t b) { return std::pair(-weights[a], a) < std::pair(-weights[b], b); });
      else  // none is heavier than another: evenly over the row
        for (size_t n = 0; n < kept; ++n) order_[n] = n * keys.size() / kept;
      order_.resize(kept);
      std::sort(order_.begin(), order_.end());
    }
    for (const size_t e : order_) {
      keys_.push_back(keys[e]);
      if (!weights.empty()) weights_.push_back(static_cast<float>(weights[e]));
    }
    offsets_.push_back(static_cast<int32_t>(keys_.size()));
  }

  HeadSnapshot finish(int64_t edges, bool has_weights) {
    const auto tensor = [](const auto& values, at::ScalarType dtype) {
      return at::tensor(values, at::TensorOptions().dtype(dtype));
    };
    head_.offsets = tensor(offsets_, at::kInt);
    head_.keys = tensor(keys_, at::kInt);
    if (has_weights) head_.weights = tensor(weights_, at::kFloat).to(at::kHalf);
    head_.edges = edges;
    return std::move(head_);
  }

 private:
  HeadSnapshot head_;
  size_t row_limit_ = std::numeric_limits<size_t>::max();
  std::vector<int32_t> offsets_ = {0}, keys_;
  std::vector<float> weights_;
  std::vector<size_t> order_;
};

HeadSnapshot single_edges(const HeadEdgesInput& input, int64_t head) {
  const EdgeSet& edges = *input.view.edges;
  const EdgeShape& shape = edges.shape();
  const auto* const offsets = edges.row_offsets().const_data_ptr<int64_t>() + head * shape.queries;
  const auto* const columns = edges.col_indices().const_data_ptr<int32_t>();
  const Scores scores(input.view, head);
  const int64_t chosen = offsets[input.queries] - offsets[0];
  Collector collector(input.queries, chosen, input.most_edges);
  std::vector<double> weights;
  for (int64_t i = 0; i < input.queries; ++i) {
    const std::span keys(columns + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i]));
    if (scores.exist()) scores.softmax(i, keys, weights);
    collector.add_row(keys, weights);
  }
  return collector.finish(chosen, scores.exist());
}

// The pairs of a square that take part, for one query.
class PairsOfSquares {
 public:
  PairsOfSquares(const graph::SquarePairs& pairs, const EdgeShape& shape) : pairs_(pairs), keys_(shape.keys) {
    if (pairs.key_bits.defined()) key_bits_ = pairs.key_bits.to(at::kCPU).contiguous();
    if (pairs.query_mask.defined()) query_mask_ = pairs.query_mask.to(at::kCPU).contiguous();
  }

  bool takes_part(int64_t query) const {
    return !query_mask_.defined() || query_mask_.const_data_ptr<bool>()[query];
  }
  void append(int64_t query, int32_t group, std::vector<int32_t>& keys) const {
    const int64_t first = group * kSquare, last = std::min(first + kSquare, keys_);
    const uint32_t bits = key_bits_.defined()
                              ? static_cast<uint32_t>(key_bits_.const_data_ptr<int32_t>()[group])
                              : ~uint32_t{0};
    for (int64_t j = first; j < last; ++j) {
      const bool is_past = !pairs_.is_causal || j <= pairs_.query_offset + query;
      if (is_past && (bits >> (j - first) & 1)) keys.push_back(static_cast<int32_t>(j));
    }
  }

 private:
  const graph::SquarePairs& pairs_;
  int64_t keys_;
  at::Tensor key_bits_, query_mask_;  // of item 0
};

HeadSnapshot square_edges(const HeadEdgesInput& input, int64_t head) {
  const EdgeSet& edges = *input.view.edges;
  const graph::Squares& squares = *edges.squares();
  const at::Tensor begin = squares.begin.to(at::kCPU).contiguous(),
                   count = squares.count.to(at::kCPU).contiguous(),
                   cols = squares.cols.to(at::kCPU).contiguous();
  const int64_t first_row = head * squares.query_groups(), rows = graph::groups_of(input.queries);
  const auto* const begins = begin.const_data_ptr<int32_t>() + first_row;
  const auto* const counts = count.const_data_ptr<int32_t>() + first_row;
  const PairsOfSquares pairs(edges.square_pairs(), edges.shape());
  const Scores scores(input.view, head);
  int64_t chosen = 0, edge_count = 0;
  for (int64_t row = 0; row < rows; ++row) chosen += counts[row];
  Collector collector(rows, chosen, input.most_edges);
  std::vector<int32_t> keys;
  std::vector<double> weights, shares;
  for (int64_t row = 0; row < rows; ++row) {
    const std::span groups(cols.const_data_ptr<int32_t>() + begins[row], static_cast<size_t>(counts[row]));
    shares.assign(scores.exist() ? groups.size() : 0, 0);
    int64_t attending = 0;
    for (int64_t i = row * kSquare; i < std::min((row + 1) * kSquare, input.queries); ++i) {
      if (!pairs.takes_part(i)) continue;
      keys.clear();
      for (const int32_t group : groups) pairs.append(i, group, keys);
      edge_count += static_cast<int64_t>(keys.size());
      if (!scores.exist() || keys.empty()) continue;
      ++attending;
      scores.softmax(i, keys, weights);
      size_t square = 0;
      for (size_t e = 0; e < keys.size(); ++e) {
        while (groups[square] != keys[e] / kSquare) ++square;
        shares[square] += weights[e];
      }
    }
    for (double& share : shares) share /= static_cast<double>(std::max<int64_t>(attending, 1));
    collector.add_row(groups, shares);
  }
  return collector.finish(edge_count, scores.exist());
}

}  // namespace

HeadSnapshot head_edges(const HeadEdgesInput& input, int64_t head) {
  return input.view.edges->squares() ? square_edges(input, head) : single_edges(input, head);
}

}  // namespace edgewise::train
