// GroupBounds (sample_bounds.h): directions from a few tokens, then all tokens measured along them.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/sample/sample_bounds.h"
#include "kernels/cpu/sample/sample_kernels.h"

namespace edgewise::kernels::cpu {
namespace {

// Two vectors point the same way if the cosine between them is at least this.
constexpr float kSameWay = 0.9f;
// Share of the squared length that rounding may hide from the rest; as for SampleBounds.
float rounding_floor(int64_t clusters) {
  return 4e-6f + 1e-7f * static_cast<float>(clusters);
}

// The group whose direction is nearest to a vector.
int64_t nearest(const float* products, int64_t groups) {
  return std::max_element(products, products + groups) - products;
}

// One after the other, each vector joins the first group that points its way, or opens one.
class Grouper {
 public:
  explicit Grouper(int64_t clusters) : clusters_(clusters) {}

  void add(const float* vector) {
    const SampleKernels& kernels = sample_kernels();
    const float length = std::sqrt(kernels.dot(vector, vector, clusters_));
    if (!(length > 0 && std::isfinite(length))) return;
    float best = -1;
    size_t which = 0;
    for (size_t g = 0; g < lengths_.size(); ++g) {
      const float cosine = kernels.dot(vector, sum(g), clusters_) / (length * lengths_[g]);
      if (cosine > best) best = cosine, which = g;
    }
    if (best < kSameWay && static_cast<int64_t>(lengths_.size()) < kMostGroups) {
      which = lengths_.size();
      lengths_.push_back(0);
      sums_.resize(sums_.size() + static_cast<size_t>(clusters_), 0);
    }
    float* const into = sum(which);
    for (int64_t c = 0; c < clusters_; ++c) into[c] += vector[c] / length;
    lengths_[which] = std::sqrt(kernels.dot(into, into, clusters_));
  }
  int64_t groups() const { return static_cast<int64_t>(lengths_.size()); }
  // Unit vectors, side by side.
  std::vector<float> directions(int64_t lanes) {
    std::vector<float> result(static_cast<size_t>(clusters_ * lanes), 0);
    for (size_t g = 0; g < lengths_.size(); ++g)
      for (int64_t c = 0; c < clusters_; ++c)
        result[static_cast<size_t>(c * lanes) + g] = sum(g)[c] / lengths_[g];
    return result;
  }

 private:
  float* sum(size_t group) { return sums_.data() + static_cast<int64_t>(group) * clusters_; }
  int64_t clusters_;
  std::vector<float> sums_, lengths_;
};

// Products of tokens with all directions.
struct Projection {
  std::vector<float> products, squares;

  Projection(const GroupBounds& bounds, const float* vectors, const int32_t* tokens, int64_t count,
             int64_t clusters, bool same_on_all_levels = false)
      : products(static_cast<size_t>(count * bounds.lanes)), squares(static_cast<size_t>(count)) {
    sample_kernels().project(
        {vectors, tokens, count, clusters, bounds.directions.data(), bounds.lanes, same_on_all_levels},
        products.data(), squares.data());
  }
};

float rest_of(float square, float along, float floor) {
  const float rest = std::sqrt(std::max(square - along * along, 0.0f) + floor * square) * 1.0001f;
  return rest < 3e38f ? rest : 3e38f;  // not a number, too
}

// What the rest of all tokens adds up to, from a few of them.
double rest_estimate(const GroupBounds& bounds, const float* vectors, const std::vector<int32_t>& sample,
                     int64_t clusters, int64_t all) {
  const Projection seen(bounds, vectors, sample.data(), static_cast<int64_t>(sample.size()), clusters, true);
  double sum = 0;
  for (size_t n = 0; n < sample.size(); ++n) {
    const float* products = seen.products.data() + static_cast<int64_t>(n) * bounds.lanes;
    sum += rest_of(seen.squares[n], products[nearest(products, bounds.groups)], rounding_floor(clusters));
  }
  return sample.empty() ? 0 : sum / static_cast<double>(sample.size()) * static_cast<double>(all);
}

}  // namespace

GroupBounds group_directions(const SampleHead& head) {
  GroupBounds bounds;
  const std::vector<int32_t> queries = valid_queries(head),
                             rows = token_sample(queries.data(), static_cast<int64_t>(queries.size())),
                             keys = token_sample(head.valid_keys, head.valid_key_count);
  Grouper grouper(head.clusters);
  for (const int32_t row : rows) grouper.add(head.query_membership + row * head.clusters);
  for (const int32_t key : keys) grouper.add(head.key_side + key * head.clusters);
  bounds.groups = grouper.groups();
  bounds.lanes = (bounds.groups + 15) / 16 * 16;
  bounds.directions = grouper.directions(bounds.lanes);
  if (bounds.groups == 0) return bounds;
  bounds.row_rest = rest_estimate(bounds, head.query_membership, rows, head.clusters, head.valid_query_count);
  bounds.key_rest = rest_estimate(bounds, head.key_side, keys, head.clusters, head.valid_key_count);
  return bounds;
}

void measure_groups(const SampleHead& head, GroupBounds& bounds) {
  const int64_t groups = bounds.groups, lanes = bounds.lanes, clusters = head.clusters,
                keys = head.valid_key_count, stride = (keys + 127) / 128 * 128;
  const float floor = rounding_floor(clusters);
  const auto each = [&](const Projection& seen, int64_t count, const auto& put) {
    double sum = 0;
    for (int64_t n = 0; n < count; ++n) {
      const float* products = seen.products.data() + n * lanes;
      const int64_t group = nearest(products, groups);
      const float rest = rest_of(seen.squares[static_cast<size_t>(n)], products[group], floor);
      put(n, static_cast<uint8_t>(group), products[group], rest);
      sum += rest;
    }
    return sum;
  };

  const std::vector<int32_t> rows = valid_queries(head);
  bounds.rows.resize(static_cast<size_t>(head.queries));
  bounds.row_group.resize(static_cast<size_t>(head.queries));
  const int64_t row_count = static_cast<int64_t>(rows.size());
  Projection of_rows(bounds, head.query_membership, rows.data(), row_count, clusters);
  bounds.row_rest = each(of_rows, row_count, [&](int64_t n, uint8_t group, float along, float rest) {
    const size_t row = static_cast<size_t>(rows[static_cast<size_t>(n)]);
    bounds.row_group[row] = group;
    bounds.rows[row] = {0, along, rest};
  });
  if (row_count == head.queries) {
    bounds.row_first = std::move(of_rows.products);
  } else {
    bounds.row_first.resize(static_cast<size_t>(head.queries * lanes));
    for (int64_t n = 0; n < row_count; ++n)
      std::copy_n(of_rows.products.data() + n * lanes, lanes,
                  bounds.row_first.data() + rows[static_cast<size_t>(n)] * lanes);
  }

  bounds.keys.resize(static_cast<size_t>(stride));
  bounds.key_group.resize(static_cast<size_t>(stride));
  const Projection of_keys(bounds, head.key_side, head.valid_keys, keys, clusters);
  bounds.key_rest = each(of_keys, keys, [&](int64_t n, uint8_t group, float along, float rest) {
    bounds.key_group[static_cast<size_t>(n)] = group;
    bounds.keys[static_cast<size_t>(n)] = {along, 0, rest};
  });
  bounds.key_second.resize(static_cast<size_t>(groups * stride));
  for (int64_t h = 0; h < groups; ++h) {
    float between[kMostGroups] = {};  // d_g . d_h
    for (int64_t c = 0; c < clusters; ++c)
      for (int64_t g = 0; g < groups; ++g)
        between[g] += bounds.directions[static_cast<size_t>(c * lanes + g)] *
                      bounds.directions[static_cast<size_t>(c * lanes + h)];
    for (int64_t n = 0; n < keys; ++n)
      bounds.key_second[static_cast<size_t>(h * stride + n)] =
          of_keys.products[static_cast<size_t>(n * lanes + h)] -
          bounds.keys[static_cast<size_t>(n)].first * between[bounds.key_group[static_cast<size_t>(n)]];
  }
}

}  // namespace edgewise::kernels::cpu
