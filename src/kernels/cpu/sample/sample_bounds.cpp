#include "kernels/cpu/sample/sample_bounds.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/sample/sample_kernels.h"

namespace edgewise::kernels::cpu {
namespace {

// The mean direction of the given vectors: unit length, or 0 if they are all 0.
std::vector<float> mean_direction(const float* vectors, const std::vector<int32_t>& tokens,
                                  int64_t clusters) {
  std::vector<float> sum(static_cast<size_t>(clusters), 0);
  float* const into = sum.data();
  for (const int32_t token : tokens) {
    const float* vector = vectors + token * clusters;
#pragma omp simd
    for (int64_t c = 0; c < clusters; ++c) into[c] += vector[c];
  }
  double square = 0;
  for (const float x : sum) square += double{x} * x;
  if (!(square > 0 && std::isfinite(square))) return std::vector<float>(static_cast<size_t>(clusters), 0);
  const double scale = 1 / std::sqrt(square);
  for (float& x : sum) x = static_cast<float>(x * scale);
  return sum;
}

// A second term whose products add less than this to the spread is not worth a multiplication of its own.
constexpr double kFoldedSpread = 5e-4;

// Fills what is in fixed point. With a fold the second term counts as rest.
void fix_keys(float fold, SqueezeBounds& bounds) {
  bounds.first.resize(static_cast<size_t>(bounds.stride));
  bounds.block_rest.resize(static_cast<size_t>(bounds.stride / 64));
  if (fold <= 0) bounds.second.resize(static_cast<size_t>(bounds.groups * bounds.stride));
  FixParams params;
  params.terms = bounds.keys;
  params.stride = bounds.stride;
  params.group_second = bounds.group_terms.key_second;
  params.groups = bounds.groups;
  params.fold = fold;
  params.first = bounds.first.data();
  params.second = fold > 0 ? nullptr : bounds.second.data();
  params.block_rest = bounds.block_rest.data();
  bounds.largest = sample_kernels().fix(params);
}

}  // namespace

std::vector<int32_t> valid_queries(const SampleHead& head) {
  std::vector<int32_t> rows;
  rows.reserve(static_cast<size_t>(head.valid_query_count));
  for (int64_t i = 0; i < head.queries; ++i)
    if (!head.query_mask || head.query_mask[i]) rows.push_back(static_cast<int32_t>(i));
  return rows;
}

std::vector<int32_t> token_sample(const int32_t* tokens, int64_t count) {
  // Which tokens they are changes cost, never edges of the squeezed sampler.
  constexpr int64_t kTokens = 128, kRun = 8;
  const int64_t stride = std::max<int64_t>(count * kRun / kTokens, kRun);
  std::vector<int32_t> sample;
  for (int64_t run = 0; run < count; run += stride)
    sample.insert(sample.end(), tokens + run, tokens + std::min(run + kRun, count));
  return sample;
}

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
  const std::vector<int32_t> row_tokens = valid_queries(head);
  const int64_t rows = static_cast<int64_t>(row_tokens.size());
  const std::vector<float> key_direction =
                               mean_direction(head.key_side, token_sample(head.valid_keys, keys), clusters),
                           row_direction = mean_direction(head.query_membership,
                                                          token_sample(row_tokens.data(), rows), clusters);
  const SampleKernels& kernels = sample_kernels();
  MeasureParams of_rows;
  of_rows.vectors = head.query_membership;
  of_rows.tokens = row_tokens.data();
  of_rows.count = rows;
  of_rows.clusters = clusters;
  of_rows.key_direction = key_direction.data();
  of_rows.query_direction = row_direction.data();
  of_rows.between = kernels.dot(key_direction.data(), row_direction.data(), clusters);
  of_rows.by_token = true;
  MeasureParams of_keys = of_rows;
  of_keys.vectors = head.key_side;
  of_keys.tokens = head.valid_keys;
  of_keys.count = keys;
  of_keys.keys = true;
  of_keys.by_token = false;
  bounds.rows.resize(static_cast<size_t>(head.queries));
  bounds.keys.resize(static_cast<size_t>((keys + 127) / 128 * 128));
  bounds.of_rows = kernels.measure(of_rows, bounds.rows.data());
  bounds.of_keys = kernels.measure(of_keys, bounds.keys.data());
  bounds.valid = (bounds.of_rows.valid && bounds.of_keys.valid) || valid_memberships(head);
  return bounds;
}

SqueezeBounds squeeze_bounds(const SampleHead& head, const SampleBounds& bounds) {
  SqueezeBounds result;
  result.rows = bounds.rows.data();
  result.keys = bounds.keys.data();
  result.stride = static_cast<int64_t>(bounds.keys.size());
  double fold = 0;
  const double pairs =
      static_cast<double>(head.valid_query_count) * static_cast<double>(head.valid_key_count);
  if (bounds.of_rows.second_size * bounds.of_keys.second_size < kFoldedSpread * pairs) {
    // |second second'| + rest rest' <= |(rest, a second)| |(rest', second' / a)|; a makes both sides alike.
    const double row_share = bounds.of_rows.second_size / std::max(bounds.of_rows.rest, 1e-30),
                 key_share = bounds.of_keys.second_size / std::max(bounds.of_keys.rest, 1e-30);
    fold = row_share > 0 && key_share > 0 ? std::sqrt(key_share / row_share) : 1;
    result.row_fold = static_cast<float>(fold * 1.0001);
  }
  fix_keys(fold > 0 ? static_cast<float>(1.0001 / fold) : 0, result);
  return result;
}

SqueezeBounds squeeze_bounds(const GroupBounds& bounds) {
  SqueezeBounds result;
  result.groups = bounds.groups;
  result.rows = bounds.rows.data();
  result.keys = bounds.keys.data();
  result.stride = static_cast<int64_t>(bounds.keys.size());
  result.group_terms = {bounds.row_first.data(), bounds.key_second.data(), bounds.lanes,
                        result.stride,           bounds.row_group.data(),  bounds.key_group.data()};
  result.fixed_group.resize(bounds.key_group.size());
  for (int64_t n = 0; n < result.stride; ++n)
    result.fixed_group[static_cast<size_t>(n / 64 * 64 + block_position(n % 64))] =
        bounds.key_group[static_cast<size_t>(n)];
  fix_keys(0, result);
  return result;
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
  const double pairs =
      static_cast<double>(head.valid_query_count) * static_cast<double>(head.valid_key_count);
  return (bounds.of_rows.first * bounds.of_keys.first + bounds.of_rows.second * bounds.of_keys.second +
          head.exploration * pairs) *
         (head.is_causal ? 0.5 : 1);
}

}  // namespace edgewise::kernels::cpu
