// The two products of a group of rows with the rows that their edges name: a dot product per edge and a
// weighted sum per row, in the order of edge_bundles.h. Compiled once per level (simd.h).
//
// N: vectors of a row when its width is N whole vectors, else 0.
#pragma once

#include <type_traits>

#include "kernels/cpu/edge_bundles.h"
#include "kernels/cpu/gathered_rows.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// A group of rows with its edges in order.
struct GroupWalk {
  const RowGroup& group;
  const GroupEdges& edges;
  const Rests& rests;
  const int32_t* indices;  // of all edges
  int64_t stop;            // entries of `indices` that may be asked for
  bool ordered;            // by keys; else row by row

  // The edge behind the group's last.
  EDGEWISE_INLINE int64_t end() const {
    return group.rows[group.count - 1].begin + group.rows[group.count - 1].degree;
  }
};

// Rows of one head that edges name.
template <typename T>
struct NamedRows {
  const T* base;
  int64_t stride, width;
  bool ahead;  // too many for the cache: ask for them before they are wanted

  EDGEWISE_INLINE const T* row(int32_t index) const { return base + index * stride; }
  EDGEWISE_INLINE void ask(const int32_t* indices, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      const char* const bytes = reinterpret_cast<const char*>(row(indices[i]));
      for (int64_t b = 0; b < width * static_cast<int64_t>(sizeof(T)); b += 64)
        __builtin_prefetch(bytes + b, 0, 2);
    }
  }
};

inline constexpr int64_t kBundlesAhead = 3;

// finish(dots of W neighbouring edges, where they lie in the per-edge buffers) for all edges of the group;
// dots = factor * left_of(n) . row, n the number of the edge's row. Lanes behind the end of a row hold
// numbers of other edges.
template <int N, typename T, typename LeftOf, typename Finish>
EDGEWISE_INLINE void group_dots(const GroupWalk& walk, const NamedRows<T>& rows, const LeftOf& left_of,
                                Accumulator<T> factor, const Finish& finish) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  const RowGroup& group = walk.group;
  const V scale = V::broadcast(factor);
  const int64_t next_group = walk.end();
  alignas(64) Acc several[kBundle];  // N = 0
  for (int64_t b = 0; b < walk.edges.bundles(); ++b) {
    const int32_t* const indices = walk.edges.indices(b);
    const T* const left_row = left_of(walk.edges[b].number);
    // The next group's lists come while this one's keys are worked on.
    __builtin_prefetch(walk.indices + next_group + b * kBundle, 0, 2);
    if (rows.ahead && b + kBundlesAhead < walk.edges.bundles())
      rows.ask(walk.edges.indices(b + kBundlesAhead), kBundle);
    if constexpr (N > 0) {
      const Left<T, N> left(left_row, 0);
#pragma GCC unroll 4
      for (int e = 0; e < kBundle; e += V::kWidth) {
        const auto products = [&](int i)
                                  EDGEWISE_INLINE_LAMBDA { return left.products(rows.row(indices[e + i])); };
        finish(scale * transpose_reduce<Acc>(products, V::kWidth), b * kBundle + e);
      }
    } else {
      dots(left_row, Gathered<T>{rows.base, rows.stride, rows.width, indices, kBundle}, factor, several);
      for (int e = 0; e < kBundle; e += V::kWidth) finish(V::load(several + e), b * kBundle + e);
    }
  }
  if constexpr (N > 0) {
    alignas(64) Acc rests[(kGroupRows + 1) * kBundle];
    const int32_t *const indices = walk.rests.indices(), *const numbers = walk.rests.numbers();
    for (int64_t e = 0; e < walk.rests.count(); e += V::kWidth) {
      if (rows.ahead && e + 64 <= walk.rests.count()) rows.ask(indices + e + 48, V::kWidth);
      const auto products = [&](int i) EDGEWISE_INLINE_LAMBDA {
        return Left<T, N>(left_of(numbers[e + i]), 0).products(rows.row(indices[e + i]));
      };
      (scale * transpose_reduce<Acc>(products, V::kWidth)).store(rests + e);
    }
    const Acc* from = rests;
    for (int n = 0; n < group.count; ++n) {
      const GroupRow& row = group.rows[n];
      for (int64_t e = 0; e < row.rest(); e += V::kWidth)
        finish(V::load(from + e), walk.edges.rest_slot(n) * kBundle + e);
      from += row.rest();
    }
  } else {
    for (int n = 0; n < group.count; ++n) {
      const GroupRow& row = group.rows[n];
      if (row.rest() == 0) continue;
      dots(left_of(n),
           Gathered<T>{rows.base, rows.stride, rows.width, walk.indices + row.begin + row.bundled(),
                       row.rest()},
           factor, several);
      for (int64_t e = 0; e < row.rest(); e += V::kWidth)
        finish(V::load(several + e), walk.edges.rest_slot(n) * kBundle + e);
    }
  }
}

// What group_sums makes of the per-edge numbers before they are weights.
struct Plain {
  static constexpr bool kCounts = false;
  template <typename V>
  EDGEWISE_INLINE V operator()(V v) const {
    return v;
  }
};
struct Exponential {
  static constexpr bool kCounts = true;  // and their sum is wanted
  template <typename V>
  EDGEWISE_INLINE V operator()(V v) const {
    return exp(v);
  }
};

// A weighted sum of rows in registers; several additions that do not wait for each other.
template <int N, typename T>
struct RunningSum {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  static constexpr int kSums = N >= 8 ? 1 : N >= 4 ? 2 : 4, kVectors = kBundle / V::kWidth;
  V total[kSums][N];

  EDGEWISE_INLINE RunningSum() {
#pragma GCC unroll 16
    for (int u = 0; u < kSums; ++u)
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) total[u][n] = V::zero();
  }
  EDGEWISE_INLINE void add(int u, V weight, const T* from) {
    V row[N];
    load_row(from, row);
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) total[u][n] = fma(weight, row[n], total[u][n]);
  }
  // `weights` are in registers and in memory.
  EDGEWISE_INLINE void add_bundle(const V (&weights)[kVectors], const Acc* memory, const NamedRows<T>& rows,
                                  const int32_t* indices) {
    if constexpr (std::is_same_v<T, Bf16>) {  // widening takes the ports that lanes would be spread on
#pragma GCC unroll 16
      for (int i = 0; i < kBundle; ++i) add(i % kSums, V::broadcast(memory[i]), rows.row(indices[i]));
    } else {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        for_lanes(weights[v], [&](int lane, V weight) EDGEWISE_INLINE_LAMBDA {
          const int i = v * V::kWidth + lane;
          add(i % kSums, weight, rows.row(indices[i]));
        });
    }
  }
  // Less than a bundle, in whole steps: a row of zeros stands for edges behind the last, so that only the
  // number of steps can be mispredicted.
  EDGEWISE_INLINE void add_rest(const Acc* weights, const NamedRows<T>& rows, const int32_t* indices,
                                int64_t count) {
    alignas(64) static constexpr T kZeros[N * V::kWidth] = {};
    for (int64_t i = 0; i < count; i += kSums) {
      add(0, V::broadcast(weights[i]), rows.row(indices[i]));
#pragma GCC unroll 16
      for (int u = 1; u < kSums; ++u) {
        const bool exists = i + u < count;
        const int64_t e = exists ? i + u : i;
        const T* const row = rows.row(indices[e]);
        add(u, V::broadcast(weights[e]), exists ? row : kZeros);
      }
    }
  }
  EDGEWISE_INLINE void add_partial(const Acc* partial) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) total[0][n] = total[0][n] + V::load(partial + n * V::kWidth);
  }
  EDGEWISE_INLINE void finish(V (&result)[N]) const {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      result[n] = total[0][n];
#pragma GCC unroll 16
      for (int u = 1; u < kSums; ++u) result[n] = result[n] + total[u][n];
    }
  }
  EDGEWISE_INLINE void store(Acc* partial) const {
    V result[N];
    finish(result);
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) result[n].store(partial + n * V::kWidth);
  }
  EDGEWISE_INLINE void store(T* out, Acc factor) const {
    V result[N];
    finish(result);
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) result[n] = V::broadcast(factor) * result[n];
    store_row(out, result);
  }
};

// Sums between bundles of a row: W lanes of the sum of weights, then the sum of rows.
template <typename T>
struct Partials {
  using Acc = Accumulator<T>;
  explicit Partials(int64_t width) : scratch(kGroupRows, kBundle + (width + 15) / 16 * 16) {}
  EDGEWISE_INLINE Acc* weights(int n) const { return scratch.buffer(n); }
  EDGEWISE_INLINE Acc* rows(int n) const { return scratch.buffer(n) + kBundle; }
  Scratch<Acc> scratch;
};

// out_of(n) = factor_of(n, sum of weights) * sum over the edges of row n of weight * row, where the weights
// are weight_of(numbers); the sum of weights is formed for Exponential only. Overwrites numbers by weights.
template <int N, typename T, typename WeightOf, typename FactorOf, typename OutOf>
EDGEWISE_INLINE void group_sums(const GroupWalk& walk, const NamedRows<T>& rows, Accumulator<T>* numbers,
                                const Partials<T>& partials, const WeightOf& weight_of,
                                const FactorOf& factor_of, const OutOf& out_of) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  constexpr int kVectors = kBundle / V::kWidth;
  const RowGroup& group = walk.group;
  const GroupEdges& edges = walk.edges;
  // The weights of a bundle are made while the bundle before it is summed: exp is a long chain.
  V next[kVectors];
  const auto prepare = [&](int64_t slot) EDGEWISE_INLINE_LAMBDA {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) next[v] = weight_of(V::load(numbers + slot * kBundle + v * V::kWidth));
  };
  const auto take = [&](int64_t slot, V(&weights)[kVectors], V& count) EDGEWISE_INLINE_LAMBDA {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = next[v];
      if (WeightOf::kCounts) count = count + weights[v];
      if (WeightOf::kCounts && (N == 0 || std::is_same_v<T, Bf16>))
        weights[v].store(numbers + slot * kBundle + v * V::kWidth);
    }
  };
  // Of the last slot of row n, less than a bundle.
  const auto take_rest = [&](int n, V& count) EDGEWISE_INLINE_LAMBDA {
    Acc* const rest = numbers + edges.rest_slot(n) * kBundle;
    if (WeightOf::kCounts)
      for (int64_t e = 0; e < group.rows[n].rest(); e += V::kWidth) {
        const int64_t left = group.rows[n].rest() - e;
        const V weights = keep_first(weight_of(V::load(rest + e)),
                                     static_cast<int>(left < V::kWidth ? left : V::kWidth), V::zero());
        weights.store(rest + e);
        count = count + weights;
      }
    return rest;
  };
  const auto finish = [&](int n, V count) EDGEWISE_INLINE_LAMBDA {
    return factor_of(n, WeightOf::kCounts ? sum(count) : Acc{0});
  };
  if (walk.ordered) {
    const int64_t padded = kBundle + (rows.width + 15) / 16 * 16;
    for (int n = 0; n < group.count; ++n)
      for (int64_t d = 0; d < padded; d += V::kWidth) V::zero().store(partials.weights(n) + d);
    prepare(0);
    for (int64_t b = 0; b < edges.bundles(); ++b) {
      const int n = edges[b].number;
      V weights[kVectors], count = V::load(partials.weights(n));
      take(b, weights, count);
      prepare(b + 1);
      if (WeightOf::kCounts) count.store(partials.weights(n));
      if (rows.ahead && b + kBundlesAhead < edges.bundles())
        rows.ask(edges.indices(b + kBundlesAhead), kBundle);
      if constexpr (N > 0) {
        RunningSum<N, T> sum;
        sum.add_bundle(weights, numbers + b * kBundle, rows, edges.indices(b));
        sum.add_partial(partials.rows(n));
        sum.store(partials.rows(n));
      } else {
        SumTarget<T> target{nullptr};
        target.partial = partials.rows(n);
        target.first = target.last = false;
        weighted_sum<T>(numbers + b * kBundle,
                        {rows.base, rows.stride, rows.width, edges.indices(b), kBundle}, target);
      }
    }
  } else {
    prepare(0);
  }
  for (int n = 0; n < group.count; ++n) {
    const GroupRow& row = group.rows[n];
    const int32_t* const indices = walk.indices + row.begin;
    V count = walk.ordered ? V::load(partials.weights(n)) : V::zero();
    if constexpr (N > 0) {
      RunningSum<N, T> sum;
      if (!walk.ordered)
        for (int64_t b = 0; b < row.bundled() / kBundle; ++b) {
          const int64_t slot = edges.slot(n, b);
          V weights[kVectors];
          take(slot, weights, count);
          prepare(slot + 1);
          if (rows.ahead && row.begin + (b + 4) * kBundle <= walk.stop)
            rows.ask(indices + (b + 3) * kBundle, kBundle);
          sum.add_bundle(weights, numbers + slot * kBundle, rows, indices + b * kBundle);
        }
      const Acc* const rest = take_rest(n, count);
      sum.add_rest(rest, rows, indices + row.bundled(), row.rest());
      if (walk.ordered) sum.add_partial(partials.rows(n));
      sum.store(out_of(n), finish(n, count));
    } else {
      const int64_t known = rows.ahead ? walk.stop - row.begin : 0;
      SumTarget<T> target{out_of(n)};
      target.partial = partials.rows(n);
      target.last = false;
      if (!walk.ordered) {
        for (int64_t b = 0; b < row.bundled() / kBundle; ++b) {
          V weights[kVectors];
          take(edges.slot(n, b), weights, count);
          prepare(edges.slot(n, b) + 1);
        }
        weighted_sum<T>(numbers + edges.slot(n, 0) * kBundle,
                        {rows.base, rows.stride, rows.width, indices, row.bundled(), known}, target);
      }
      const Acc* const rest = take_rest(n, count);
      target.first = false, target.last = true;
      target.factor = finish(n, count);
      weighted_sum<T>(rest, {rows.base, rows.stride, rows.width, indices + row.bundled(), row.rest()},
                      target);
    }
  }
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
