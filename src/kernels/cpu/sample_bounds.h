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

#include "kernels/cpu/sample.h"

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

// The key terms in fixed point, for the squeezed sampler; see FixParams.
struct FixedBounds {
  std::vector<uint16_t> first;       // [keys]
  std::vector<int16_t> second;       // [keys]; empty: the second term counts as rest
  std::vector<uint16_t> block_rest;  // [keys / 64]
  FixScales largest;
  float row_fold = 0;  // by this the second term of a row counts as rest
};
FixedBounds fixed_bounds(const SampleHead& head, const SampleBounds& bounds);

// Bounds for heads whose memberships do not point one way: both sides rounded to 16-bit integers, so that
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

// Where key n of a block of 64 stands in key_fixed: narrowing two vectors of 16-bit lanes to bytes
// interleaves groups of eight, and this order undoes it for every vector width.
constexpr int64_t block_position(int64_t n) {
  const int64_t group = n / 16, within = n % 16;
  return within < 8 ? group * 8 + within : 32 + group * 8 + within - 8;
}

// Sum over allowed pairs of p, exploration included, as the first two terms see it; causality counts as half.
double expected_edges(const SampleHead& head, const SampleBounds& bounds);

}  // namespace edgewise::kernels::cpu
