#include "kernels/cpu/sample_bounds.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/sample_kernels.h"

namespace edgewise::kernels::cpu {
namespace {

// Enough tokens to find a direction; which one is chosen changes cost, never edges of the squeezed sampler.
constexpr int64_t kDirectionTokens = 256;

std::vector<int32_t> valid_queries(const SampleHead& head) {
  std::vector<int32_t> rows;
  rows.reserve(static_cast<size_t>(head.valid_query_count));
  for (int64_t i = 0; i < head.queries; ++i)
    if (!head.query_mask || head.query_mask[i]) rows.push_back(static_cast<int32_t>(i));
  return rows;
}

// The mean direction of the given vectors: unit length, or 0 if they are all 0.
std::vector<float> mean_direction(const float* vectors, const std::vector<int32_t>& tokens,
                                  int64_t clusters) {
  std::vector<float> sum(static_cast<size_t>(clusters), 0);
  const int64_t count = static_cast<int64_t>(tokens.size());
  const int64_t stride = std::max<int64_t>(count / kDirectionTokens, 1);
  float* const into = sum.data();
  for (int64_t n = 0; n < count; n += stride) {
    const float* vector = vectors + tokens[static_cast<size_t>(n)] * clusters;
#pragma omp simd
    for (int64_t c = 0; c < clusters; ++c) into[c] += vector[c];
  }
  double square = 0;
  for (const float x : sum) square += double{x} * x;
  const double scale = square > 0 ? 1 / std::sqrt(square) : 0;
  for (float& x : sum) x = static_cast<float>(x * scale);
  return sum;
}

// Fills key_fixed, which the squeezed sampler needs.
void fix_key_terms(const SampleHead& head, SampleBounds& bounds) {
  bounds.key_fixed.assign(static_cast<size_t>(3 * bounds.key_stride), 0);
  const auto scale = [](float units, float largest) { return largest > 0 ? units / largest : 0.0f; };
  const float first_scale = scale(65535, bounds.largest_first),
              second_scale = scale(32767, bounds.largest_second),
              rest_scale = scale(65535, bounds.largest_rest);
  uint16_t* const fixed = bounds.key_fixed.data();
  for (int64_t n = 0; n < head.valid_key_count; ++n) {
    const int64_t at = n / 64 * 64 + block_position(n % 64);
    fixed[at] = static_cast<uint16_t>(std::min(bounds.first()[n] * first_scale, 65535.0f));
    fixed[bounds.key_stride + at] = static_cast<uint16_t>(static_cast<int16_t>(
        std::clamp(std::nearbyint(bounds.second()[n] * second_scale), -32767.0f, 32767.0f)));
    fixed[2 * bounds.key_stride + at] =
        static_cast<uint16_t>(std::min(std::ceil(bounds.rest()[n] * rest_scale), 65535.0f));
  }
}

}  // namespace

bool valid_memberships(const SampleHead& head) {
  const std::vector<int32_t> rows = valid_queries(head);
  MeasureParams params;
  params.clusters = head.clusters;
  params.vectors = head.query_membership;
  params.tokens = rows.data();
  params.count = static_cast<int64_t>(rows.size());
  if (!sample_kernels().valid(params)) return false;
  params.vectors = head.key_side;
  params.tokens = head.valid_keys;
  params.count = head.valid_key_count;
  return sample_kernels().valid(params);
}

SampleBounds sample_bounds(const SampleHead& head) {
  SampleBounds bounds;
  const int64_t clusters = head.clusters, keys = head.valid_key_count;
  const std::vector<int32_t> key_tokens(head.valid_keys, head.valid_keys + keys);
  const std::vector<int32_t> row_tokens = valid_queries(head);
  const int64_t rows = static_cast<int64_t>(row_tokens.size());
  const std::vector<float> key_direction = mean_direction(head.key_side, key_tokens, clusters),
                           row_direction = mean_direction(head.query_membership, row_tokens, clusters);

  const SampleKernels& kernels = sample_kernels();
  std::vector<float> terms(static_cast<size_t>(3 * std::max(keys, rows)));
  MeasureParams measure{head.query_membership, row_tokens.data(),    rows, clusters,
                        row_direction.data(),  key_direction.data(), false};
  kernels.measure(measure, terms.data());
  bounds.row_terms.resize(static_cast<size_t>(3 * head.queries));
  for (int64_t n = 0; n < rows; ++n)
    std::copy_n(terms.data() + 3 * n, 3, bounds.row_terms.data() + 3 * row_tokens[static_cast<size_t>(n)]);

  measure = {head.key_side,        key_tokens.data(),    keys, clusters,
             key_direction.data(), row_direction.data(), true};
  kernels.measure(measure, terms.data());
  bounds.key_stride = (keys + 127) / 128 * 128;
  bounds.key_terms.assign(static_cast<size_t>(3 * bounds.key_stride), 0);
  for (int64_t n = 0; n < keys; ++n)
    for (int64_t t = 0; t < 3; ++t)
      bounds.key_terms[static_cast<size_t>(t * bounds.key_stride + n)] =
          terms[static_cast<size_t>(3 * n + t)];
  for (int64_t n = 0; n < keys; ++n) {
    bounds.largest_first = std::max(bounds.largest_first, bounds.first()[n]);
    bounds.largest_second = std::max(bounds.largest_second, std::abs(bounds.second()[n]));
    bounds.largest_rest = std::max(bounds.largest_rest, bounds.rest()[n]);
  }
  fix_key_terms(head, bounds);
  return bounds;
}

ProductBounds product_bounds(const SampleHead& head) {
  ProductBounds bounds;
  const int64_t clusters = head.clusters, pairs = (clusters + 1) / 2;
  bounds.cluster_pairs = pairs;
  bounds.key_stride = (head.valid_key_count + 127) / 128 * 128;
  // Sums of C products must fit 31 bits.
  const float largest = static_cast<float>(
      std::min(32767.0, std::floor(std::sqrt(2147483647.0 / static_cast<double>(2 * pairs)))));
  bounds.keys.assign(static_cast<size_t>(bounds.key_stride * pairs * 2), 0);
  bounds.key_terms.assign(static_cast<size_t>(3 * bounds.key_stride), 0);
  const SampleKernels& kernels = sample_kernels();
  const RoundParams round_key{clusters, largest, 128}, round_row{clusters, largest, 2};
  for (int64_t n = 0; n < head.valid_key_count; ++n) {
    float terms[3];
    kernels.round_vector(round_key, head.key_side + head.valid_keys[n] * clusters,
                         bounds.keys.data() + n / 64 * pairs * 128 + n % 64 * 2, terms);
    for (int64_t t = 0; t < 3; ++t)
      bounds.key_terms[static_cast<size_t>(t * bounds.key_stride + n)] = terms[t];
  }
  bounds.rows.assign(static_cast<size_t>(head.queries * pairs * 2), 0);
  bounds.row_terms.assign(static_cast<size_t>(3 * head.queries), 0);
  for (int64_t i = 0; i < head.queries; ++i)
    if (!head.query_mask || head.query_mask[i])
      kernels.round_vector(round_row, head.query_membership + i * clusters,
                           bounds.rows.data() + i * pairs * 2, bounds.row_terms.data() + 3 * i);
  return bounds;
}

double expected_edges(const SampleHead& head, const SampleBounds& bounds) {
  double rows[2] = {}, keys[2] = {};
  for (int64_t i = 0; i < head.queries; ++i)
    if (!head.query_mask || head.query_mask[i])
      for (int t = 0; t < 2; ++t) rows[t] += bounds.row_terms[static_cast<size_t>(3 * i + t)];
  for (int64_t n = 0; n < head.valid_key_count; ++n) {
    keys[0] += bounds.first()[n];
    keys[1] += bounds.second()[n];
  }
  const double pairs =
      static_cast<double>(head.valid_query_count) * static_cast<double>(head.valid_key_count);
  return (rows[0] * keys[0] + rows[1] * keys[1] + head.exploration * pairs) * (head.is_causal ? 0.5 : 1);
}

}  // namespace edgewise::kernels::cpu
