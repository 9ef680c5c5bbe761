// The two products of a group of rows with the rows that their edges name: a dot product per edge and a
// weighted sum per row, in the order of edge_bundles.h. Compiled once per level (simd.h).
//
// N: vectors of a row when its width is N whole vectors, else 0.
#pragma once

#include <type_traits>

#include "kernels/cpu/attention/edge_bundles.h"
#include "kernels/cpu/attention/gathered_rows.h"
#include "kernels/cpu/attention/kept_numbers.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {

// A group of rows with its edges in order.
struct GroupWalk {
  const RowGroup& group;
  const GroupEdges& edges;
  const Rests& rests;
  const int32_t* indices;  // of all edges
  int64_t stop;            // entries of `indices` that may be asked for

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

  EDGEWISE_INLINE const T* row(int32_t index) const {
    const T* row = base + index * stride;
    asm("" : "+r"(row));  // in one register: loads that add two are two operations each
    return row;
  }
  EDGEWISE_INLINE void ask(const int32_t* indices, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      const char* const bytes = reinterpret_cast<const char*>(row(indices[i]));
      for (int64_t b = 0; b < width * static_cast<int64_t>(sizeof(T)); b += 64)
        __builtin_prefetch(bytes + b, 0, 2);
    }
  }
};

inline constexpr int64_t kBundlesAhead = 3;  // that are asked for; of runs, the next
static_assert(kBundlesAhead < GroupEdges::kMore);
// Runs that are taken in one call, after which what they left in the cache is still there.
inline constexpr int64_t kBatch = 16;
EDGEWISE_INLINE int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// The rows of a group themselves, n = 0 .. count.
template <typename T>
struct OwnRows {
  const T* base;
  int64_t stride;
  EDGEWISE_INLINE const T* row(int64_t n) const { return base + n * stride; }
};

// A bundle's factor * left . row.
template <int N, typename T>
EDGEWISE_INLINE void dots_of_bundle(const Left<T, N>& left, const NamedRows<T>& rows, const int32_t* indices,
                                    Vec<Accumulator<T>> factor, Accumulator<T>* out) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
#pragma GCC unroll 4
  for (int e = 0; e < kBundle; e += V::kWidth) {
    const auto products = [&](int i)
                              EDGEWISE_INLINE_LAMBDA { return left.products(rows.row(indices[e + i])); };
    (factor * transpose_reduce<Acc>(products, V::kWidth)).store(out + e);
  }
}

// Of `count` runs, while the one that lies `distance` ahead is asked for. Not inlined: alone it has the
// registers that it wants.
template <int N, bool kAhead, typename T>
[[gnu::noinline]] void dots_of_runs(const Run* run, int64_t count, int64_t run_edges, int64_t distance,
                                    const int32_t* list, const OwnRows<T>& given_left,
                                    const NamedRows<T>& named, Accumulator<T> factor, Accumulator<T>* out) {
  using V = Vec<Accumulator<T>>;
  const OwnRows<T> lefts = given_left;
  const NamedRows<T> rows = named;
  const V scale = V::broadcast(factor);
  for (const Run* const end = run + count; run < end; ++run) {
    const int32_t *indices = list + run->first, *next = list + run[kAhead ? distance : 1].first;
    const Left<T, N> left(lefts.row(run->number), 0);
    for (const int32_t* const stop = indices + run_edges; indices < stop;
         indices += kBundle, next += kBundle, out += kBundle) {
      __builtin_prefetch(next);  // the hardware does not see the lists of other rows coming
      if constexpr (kAhead) rows.ask(next, kBundle);
      dots_of_bundle(left, rows, indices, scale, out);
    }
  }
}

// numbers = factor * lefts.row(n) . row for all edges of the group, n the number of the edge's row, in the
// order of its slots; lanes behind the end of a row hold numbers of other edges.
template <int N, typename T>
EDGEWISE_INLINE void group_dots(const GroupWalk& walk, const NamedRows<T>& rows, const OwnRows<T>& lefts,
                                Accumulator<T> factor, Accumulator<T>* numbers,
                                const KeptNumbers<Accumulator<T>>& kept = {}) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  const RowGroup& group = walk.group;
  const GroupEdges& edges = walk.edges;
  const auto gathered = [&](int64_t edge, int64_t count) EDGEWISE_INLINE_LAMBDA {
    return Gathered<T>{rows.base,           rows.stride, rows.width,
                       walk.indices + edge, count,       rows.ahead ? walk.stop - edge : 0};
  };
  // The next group's lists come while this one's keys are worked on.
  const auto ask_for_list = [&](int64_t place, int64_t count) EDGEWISE_INLINE_LAMBDA {
    for (int64_t e = 0; e < count; e += kBundle)
      __builtin_prefetch(walk.indices + walk.end() + place + e, 0, 2);
  };
  const auto dots_of = [&](const Run* runs, int64_t count, int64_t run_edges, int64_t distance,
                           int64_t place) EDGEWISE_INLINE_LAMBDA {
    ask_for_list(place, count * run_edges);
    if constexpr (N > 0) {
      const auto of_runs = rows.ahead ? dots_of_runs<N, true, T> : dots_of_runs<N, false, T>;
      of_runs(runs, count, run_edges, distance, walk.indices + edges.first_edge(), lefts, rows, factor,
              numbers + place);
    } else {
      for (int64_t r = 0; r < count; ++r)
        dots(lefts.row(runs[r].number), gathered(edges.first_edge() + runs[r].first, run_edges), factor,
             numbers + place + r * run_edges);
    }
  };
  const int64_t run_edges = edges.run_edges();
  for (int64_t r = 0; r < edges.runs(); r += kBatch) {
    const int64_t count = least(edges.runs() - r, kBatch);
    dots_of(edges.run(r), count, run_edges, 1, r * run_edges);
    if (kept.list) kept.take_runs(edges, r, count, numbers);
  }
  for (int64_t b = 0; b < edges.tail_bundles(); b += kBatch)
    dots_of(edges.tail_bundle(b), least(edges.tail_bundles() - b, kBatch), kBundle, kBundlesAhead,
            edges.tail_place(0) + b * kBundle);
  if constexpr (N > 0) {
    alignas(64) Acc rests[(kGroupRows + 1) * kBundle];
    const int32_t *const indices = walk.rests.indices(), *const rows_of = walk.rests.numbers();
    const V scale = V::broadcast(factor);
    for (int64_t e = 0; e < walk.rests.count(); e += V::kWidth) {
      if (rows.ahead && e + 64 <= walk.rests.count()) rows.ask(indices + e + 48, V::kWidth);
      const auto products = [&](int i) EDGEWISE_INLINE_LAMBDA {
        return Left<T, N>(lefts.row(rows_of[e + i]), 0).products(rows.row(indices[e + i]));
      };
      (scale * transpose_reduce<Acc>(products, V::kWidth)).store(rests + e);
    }
    const Acc* from = rests;
    for (int n = 0; n < group.count; ++n) {
      const GroupRow& row = group.rows[n];
      for (int64_t e = 0; e < row.rest(); e += V::kWidth)
        V::load(from + e).store(numbers + edges.rest_place(n) + e);
      from += row.rest();
    }
  } else {
    for (int n = 0; n < group.count; ++n) {
      const GroupRow& row = group.rows[n];
      if (row.rest() == 0) continue;
      dots(lefts.row(n), gathered(row.begin + row.bundled(), row.rest()), factor,
           numbers + edges.rest_place(n));
    }
  }
  if (kept.list) kept.take_ends(group, edges, numbers);
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
  EDGEWISE_INLINE void add_bundle(const V (&weights)[kVectors], const NamedRows<T>& rows,
                                  const int32_t* indices) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      for_lanes(weights[v], [&](int lane, V weight) EDGEWISE_INLINE_LAMBDA {
        const int i = v * V::kWidth + lane;
        add(i % kSums, weight, rows.row(indices[i]));
      });
  }
  EDGEWISE_INLINE void add_bundle(const Acc* weights, const NamedRows<T>& rows, const int32_t* indices) {
    if constexpr (std::is_same_v<T, Bf16>) {  // widening takes the ports that lanes would be spread on
#pragma GCC unroll 16
      for (int i = 0; i < kBundle; ++i) add(i % kSums, V::broadcast(weights[i]), rows.row(indices[i]));
    } else {
      V lanes[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) lanes[v] = V::load(weights + v * V::kWidth);
      add_bundle(lanes, rows, indices);
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

// Makes weights of `count` numbers, whole vectors.
template <typename WeightOf, typename Acc>
EDGEWISE_INLINE void make_weights(const WeightOf& weight_of, Acc* numbers, int64_t count) {
  using V = Vec<Acc>;
  if constexpr (WeightOf::kCounts)
    for (int64_t e = 0; e < count; e += V::kWidth) weight_of(V::load(numbers + e)).store(numbers + e);
}

// Adds bundles to the sum of their weights and to the sum of rows.
template <int N, bool kCounts, typename T>
EDGEWISE_INLINE void add_bundle(RunningSum<N, T>& sum, Vec<Accumulator<T>>& count, const NamedRows<T>& rows,
                                const int32_t* indices, const Accumulator<T>* weights) {
  using V = Vec<Accumulator<T>>;
  if constexpr (kCounts)
#pragma GCC unroll 4
    for (int v = 0; v < kBundle; v += V::kWidth) count = count + V::load(weights + v);
  sum.add_bundle(weights, rows, indices);
}

// Adds `count` runs to the sums of their rows.
template <int N, bool kCounts, bool kAhead, typename T>
[[gnu::noinline]] void sums_of_runs(const Run* run, int64_t count, int64_t run_edges, const int32_t* list,
                                    const NamedRows<T>& named, const Accumulator<T>* weights,
                                    const Partials<T>& given_partials) {
  using V = Vec<Accumulator<T>>;
  const NamedRows<T> rows = named;
  Accumulator<T>* const partials = given_partials.weights(0);
  const int64_t stride = given_partials.weights(1) - partials;
  for (const Run* const end = run + count; run < end; ++run) {
    const int32_t *indices = list + run->first, *next = list + run[1].first;
    Accumulator<T>* const partial = partials + run->number * stride;
    V weight_sum = V::load(partial);
    RunningSum<N, T> sum;
    for (const int32_t* const stop = indices + run_edges; indices < stop;
         indices += kBundle, next += kBundle, weights += kBundle) {
      __builtin_prefetch(next);
      if constexpr (kAhead) rows.ask(next, kBundle);
      add_bundle<N, kCounts>(sum, weight_sum, rows, indices, weights);
    }
    weight_sum.store(partial);
    sum.add_partial(partial + kBundle);
    sum.store(partial + kBundle);
  }
}

// out_of(n) = factor_of(n, sum of weights) * sum over the edges of row n of weight * row, where the weights
// are weight_of(numbers); the sum of weights is formed for Exponential only. Overwrites numbers by weights.
template <int N, typename T, typename WeightOf, typename FactorOf, typename OutOf>
EDGEWISE_INLINE void group_sums(const GroupWalk& walk, const NamedRows<T>& rows, Accumulator<T>* numbers,
                                const Partials<T>& partials, const WeightOf& weight_of,
                                const FactorOf& factor_of, const OutOf& out_of,
                                const KeptNumbers<Accumulator<T>>& kept = {}) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  constexpr bool kCounts = WeightOf::kCounts;
  const RowGroup& group = walk.group;
  const GroupEdges& edges = walk.edges;
  const bool in_runs = edges.runs() > 0;
  if (in_runs) {
    const int64_t padded = kBundle + (rows.width + 15) / 16 * 16;
    for (int n = 0; n < group.count; ++n)
      for (int64_t d = 0; d < padded; d += V::kWidth) V::zero().store(partials.weights(n) + d);
  }
  const int64_t run_edges = edges.run_edges();
  for (int64_t r = 0; r < edges.runs(); r += kBatch) {
    const int64_t count = least(edges.runs() - r, kBatch);
    make_weights(weight_of, numbers + r * run_edges, count * run_edges);
    if (kept.list) kept.take_runs(edges, r, count, numbers);
    if constexpr (N > 0) {
      const auto sums = rows.ahead ? sums_of_runs<N, kCounts, true, T> : sums_of_runs<N, kCounts, false, T>;
      sums(edges.run(r), count, run_edges, walk.indices + edges.first_edge(), rows, numbers + r * run_edges,
           partials);
    } else {
      for (int64_t i = r; i < r + count; ++i) {
        const Run& run = *edges.run(i);
        const Acc* const weights = numbers + i * run_edges;
        V weight_sum = V::load(partials.weights(run.number));
        for (int64_t e = 0; kCounts && e < run_edges; e += V::kWidth)
          weight_sum = weight_sum + V::load(weights + e);
        weight_sum.store(partials.weights(run.number));
        SumTarget<T> target{nullptr};
        target.partial = partials.rows(run.number);
        target.first = target.last = false;
        weighted_sum<T>(
            weights,
            {rows.base, rows.stride, rows.width, walk.indices + edges.first_edge() + run.first, run_edges},
            target);
      }
    }
  }
  make_weights(weight_of, numbers + edges.tail_place(0), edges.rest_place(group.count) - edges.tail_place(0));
  if (kept.list) kept.take_ends(group, edges, numbers);
  for (int n = 0; n < group.count; ++n) {
    const GroupRow& row = group.rows[n];
    const int64_t tail_count = row.bundled() - edges.tail(n);
    const int32_t *const tail = walk.indices + row.begin + edges.tail(n), *const rest = walk.indices +
                                                                                        row.begin +
                                                                                        row.bundled();
    const Acc *const tail_weights = numbers + edges.tail_place(n), *const rest_weights =
                                                                       numbers + edges.rest_place(n);
    const int64_t known = walk.stop - row.begin - edges.tail(n);
    V count = in_runs ? V::load(partials.weights(n)) : V::zero();
    for (int64_t e = 0; kCounts && e < row.rest(); e += V::kWidth) {
      const int64_t left = row.rest() - e;
      count = count + keep_first(V::load(rest_weights + e),
                                 static_cast<int>(left < V::kWidth ? left : V::kWidth), V::zero());
    }
    if constexpr (N > 0) {
      RunningSum<N, T> total;
      for (int64_t e = 0; e < tail_count; e += kBundle) {
        if (rows.ahead && e + (kBundlesAhead + 1) * kBundle <= known)
          rows.ask(tail + e + kBundlesAhead * kBundle, kBundle);
        add_bundle<N, kCounts>(total, count, rows, tail + e, tail_weights + e);
      }
      total.add_rest(rest_weights, rows, rest, row.rest());
      if (in_runs) total.add_partial(partials.rows(n));
      total.store(out_of(n), factor_of(n, kCounts ? sum(count) : Acc{0}));
    } else {
      for (int64_t e = 0; kCounts && e < tail_count; e += V::kWidth)
        count = count + V::load(tail_weights + e);
      SumTarget<T> target{out_of(n)};
      target.partial = partials.rows(n);
      target.first = !in_runs, target.last = false;
      weighted_sum<T>(tail_weights,
                      {rows.base, rows.stride, rows.width, tail, tail_count, rows.ahead ? known : 0}, target);
      target.first = false, target.last = true;
      target.factor = factor_of(n, kCounts ? sum(count) : Acc{0});
      weighted_sum<T>(rest_weights, {rows.base, rows.stride, rows.width, rest, row.rest()}, target);
    }
  }
}

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
