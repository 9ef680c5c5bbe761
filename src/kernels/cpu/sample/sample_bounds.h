// Bounds on every edge probability of a head that cost two multiplications per pair instead of C.
//
// Take two unit directions of cluster space, k along the mean of key_side and q along the mean of the query
// memberships. With t_j = (t_j . k) k + r_j and m_i = (m_i . q) q + s_i,
//
//   m_i . t_j = (m_i . k)(t_j . k) + (m_i . q)(r_j . q) + s_i . r_j,      |s_i . r_j| <= |s_i| |r'_j|
//
// where r'_j is r_j without its part along q, to which s_i is orthogonal. Memberships of one head point
// nearly the same way, so the rest is a small share of p whatever the degrees are. Any directions give valid
// bounds.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/sample/sampler.h"

namespace edgewise::kernels::cpu {

// p_ij = row.first * key.first + row.second * key.second + exploration, up to row.rest * key.rest.
struct SampleBounds {
  bool valid = true;        // are the memberships of all tokens that take part finite and not negative?
  std::vector<Terms> rows;  // [L]; masked ones are not set. First and second term are not negative
  std::vector<Terms> keys;  // [valid keys, rounded up to whole pairs of blocks of 64]; 0 beyond the keys
  MeasureResult of_rows, of_keys;
};

SampleBounds sample_bounds(const SampleHead& head);

// The same question without bounds.
bool valid_memberships(const SampleHead& head);

// Bounds for heads whose memberships point a few different ways, as clusters that have become sharp do: unit
// directions d_g, and every token in the group of the one nearest to it. For key j in group g and row i in
// group h,
//
//   m_i . t_j = (m_i . d_g)(t_j . d_g) + (m_i . d_h)(r_j . d_h) + s_i . r_j,      |s_i . r_j| <= |s_i| |r_j|
//
// with r_j = t_j - (t_j . d_g) d_g and s_i = m_i - (m_i . d_h) d_h.
struct GroupBounds {
  int64_t groups = 0;
  int64_t lanes = 0;                          // groups, rounded up to a multiple of 16
  std::vector<float> directions;              // [C, lanes]
  std::vector<Terms> rows;                    // [L]; their first terms depend on the key
  std::vector<Terms> keys;                    // as in SampleBounds; their second terms depend on the row
  std::vector<float> row_first;               // [L, lanes] by the group of the key
  std::vector<float> key_second;              // [groups, keys] by the group of the row
  std::vector<uint8_t> row_group, key_group;  // [L], [keys]
  double row_rest = 0, key_rest = 0;          // sums over rows and keys; an estimate until they are measured
};
// Directions, and what they promise: looks at few tokens. Fewer than two groups: not worth measuring.
GroupBounds group_directions(const SampleHead& head);
// The rest of it: looks at all.
void measure_groups(const SampleHead& head, GroupBounds& bounds);

// What the squeezed sampler needs of either kind. Points into the bounds it was made from.
struct SqueezeBounds {
  int64_t groups = 1;
  const Terms* rows = nullptr;  // [L]
  const Terms* keys = nullptr;  // [stride]
  int64_t stride = 0;
  GroupTerms group_terms;
  // The key terms in fixed point; see FixParams.
  std::vector<uint16_t> first;        // [stride]
  std::vector<int16_t> second;        // [groups, stride]; empty: the second term counts as rest
  std::vector<uint16_t> block_rest;   // [stride / 64]
  std::vector<uint16_t> fixed_group;  // [stride] groups of keys in the order of `first`; empty with one group
  FixScales largest;
  float row_fold = 0;  // by this the second term of a row counts as rest
};
SqueezeBounds squeeze_bounds(const SampleHead& head, const SampleBounds& bounds);
SqueezeBounds squeeze_bounds(const GroupBounds& bounds);

// Bounds for heads whose memberships point every way: both sides rounded to 16-bit integers, so that
// C multiply-adds of a pair cost a quarter of the floating-point ones. With m = m' + e and t = t' + f,
//
//   |m . t - m' . t'| <= |m| |f| + |e| |t|.
struct ProductBounds {
  int64_t cluster_pairs = 0;
  int64_t key_stride = 0;        // valid keys, rounded up to whole pairs of blocks
  std::vector<int16_t> keys;     // [key_stride / 64, cluster_pairs, 64, 2]
  std::vector<float> key_terms;  // [3, key_stride]: scale, |f|, |t|
  std::vector<int16_t> rows;     // [L, cluster_pairs, 2]
  std::vector<float> row_terms;  // [L, 3]: scale, |e|, |m|
  bool empty() const { return keys.empty(); }
};
ProductBounds product_bounds(const SampleHead& head);

// Where key n of a block of 64 stands in fixed point: narrowing two vectors of 16-bit lanes to bytes
// interleaves groups of eight, and this order undoes it for every vector width.
constexpr int64_t block_position(int64_t n) {
  const int64_t group = n / 16, within = n % 16;
  return within < 8 ? group * 8 + within : 32 + group * 8 + within - 8;
}

// Some of the given tokens, to find directions from: runs of neighbours, because a vector alone on its page
// costs as much to read as several.
std::vector<int32_t> token_sample(const int32_t* tokens, int64_t count);
std::vector<int32_t> valid_queries(const SampleHead& head);

// Sum over allowed pairs of p, exploration included, as the first two terms see it; causality counts as half.
double expected_edges(const SampleHead& head, const SampleBounds& bounds);

}  // namespace edgewise::kernels::cpu
