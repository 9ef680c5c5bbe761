// A row's weights before they are normalised, exp(s - top), and their sum: of a row of a group, in its slots
// (edge_bundles.h), and of numbers in sequence. Compiled once per level (simd.h).
#pragma once

#include <limits>

#include "kernels/cpu/attention/edge_bundles.h"
#include "kernels/cpu/simd.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// Calls body(vector, first entry, lanes that count) over a buffer of `count` entries.
template <typename Acc, typename Body>
EDGEWISE_INLINE void for_vectors(int64_t count, const Body& body) {
  constexpr int kWidth = Vec<Acc>::kWidth;
  int64_t e = 0;
  for (; e + kWidth <= count; e += kWidth) body(e, kWidth);
  if (e < count) body(e, static_cast<int>(count - e));
}

// The first `lanes` of W numbers; what the other lanes hold is not said.
template <typename Acc>
EDGEWISE_INLINE Vec<Acc> load_lanes(const Acc* from, int lanes) {
  using V = Vec<Acc>;
  return lanes == V::kWidth ? V::load(from) : V::load_first(from, lanes);
}

template <typename Acc>
EDGEWISE_INLINE Acc largest_of_row(const GroupEdges& edges, int n, const Acc* values) {
  using V = Vec<Acc>;
  const V lowest = V::broadcast(-std::numeric_limits<Acc>::infinity());
  V top = lowest;
  edges.for_row<V::kWidth>(n, [&](int64_t place, int64_t, int lanes) EDGEWISE_INLINE_LAMBDA {
    top = max(top, keep_first(V::load(values + place), lanes, lowest));
  });
  return largest(top);
}

// As long as the sum of a row's weights is a moderate number, top may be 0: a weight is no less exact for it,
// and nobody has to look for the largest score first.
// kModerate = e^40: neither the sum of 2^30 weights nor any weight that counts beside it (2^-24) leaves fp32.
inline constexpr double kModerate = 2.35385266837e17;

// weights = exp(scores - top) of row n and their sum. The unused lanes of the last vector become 0.
template <typename Acc>
EDGEWISE_INLINE Acc exponentials(const GroupEdges& edges, int n, const Acc* scores, Acc top, Acc* weights) {
  using V = Vec<Acc>;
  const V minus = V::broadcast(top);
  V total = V::zero();
  edges.for_row<V::kWidth>(n, [&](int64_t place, int64_t, int lanes) EDGEWISE_INLINE_LAMBDA {
    const V weight = keep_first(exp(V::load(scores + place) - minus), lanes, V::zero());
    weight.store(weights + place);
    total = total + weight;
  });
  return sum(total);
}
template <typename Acc>
[[gnu::noinline]] Acc weights_by_largest(const GroupEdges& edges, int n, const Acc* scores, Acc* weights) {
  return exponentials(edges, n, scores, largest_of_row(edges, n, scores), weights);
}
template <typename Acc>
EDGEWISE_INLINE bool is_moderate(Acc total) {
  return total >= static_cast<Acc>(1 / kModerate) && total <= static_cast<Acc>(kModerate);
}
// `scores` and `weights` may not be the same buffer.
template <typename Acc>
EDGEWISE_INLINE Acc weights_of_row(const GroupEdges& edges, int n, const Acc* scores, Acc* weights) {
  const Acc total = exponentials(edges, n, scores, Acc{0}, weights);
  return is_moderate(total) ? total : weights_by_largest(edges, n, scores, weights);
}

template <typename Acc>
EDGEWISE_INLINE Acc total_of_row(const GroupEdges& edges, int n, const Acc* values) {
  using V = Vec<Acc>;
  V total = V::zero();
  edges.for_row<V::kWidth>(n, [&](int64_t place, int64_t, int lanes) EDGEWISE_INLINE_LAMBDA {
    total = total + keep_first(V::load(values + place), lanes, V::zero());
  });
  return sum(total);
}

// The same of `count` numbers in sequence, of which nothing behind the last is read; `weights` has room for
// whole vectors and may be `scores`.
template <typename Acc>
EDGEWISE_INLINE Acc largest_of(const Acc* values, int64_t count) {
  using V = Vec<Acc>;
  const V lowest = V::broadcast(-std::numeric_limits<Acc>::infinity());
  V top = lowest;
  for_vectors<Acc>(count, [&](int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
    top = max(top, keep_first(load_lanes(values + e, lanes), lanes, lowest));
  });
  return largest(top);  // -inf when there is none
}
template <typename Acc>
EDGEWISE_INLINE Acc exponentials(const Acc* scores, int64_t count, Acc top, Acc* weights) {
  using V = Vec<Acc>;
  V total = V::zero();
  for_vectors<Acc>(count, [&](int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
    const V weight = keep_first(exp(load_lanes(scores + e, lanes) - V::broadcast(top)), lanes, V::zero());
    weight.store(weights + e);
    total = total + weight;
  });
  return sum(total);
}
template <typename Acc>
EDGEWISE_INLINE Acc total_of(const Acc* values, int64_t count) {
  using V = Vec<Acc>;
  V total = V::zero();
  for_vectors<Acc>(count, [&](int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
    total = total + keep_first(load_lanes(values + e, lanes), lanes, V::zero());
  });
  return sum(total);
}
template <typename Acc>
[[gnu::noinline]] Acc weights_by_largest(const Acc* scores, int64_t count, Acc* weights) {
  return exponentials(scores, count, largest_of(scores, count), weights);
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
