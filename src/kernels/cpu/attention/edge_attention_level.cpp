// Attention over edges, compiled once per CPU level (simd.h).
//
// Row i attends over its edges N_i:  s_ij = scale q_i . k_j,  a = softmax over N_i,  o_i = sum_j a_ij v_j.
// Backward, with g = dL/do_i, u_ij = g . v_j (times the dropout factor) and ubar = g . o_i:
//   dL/ds_ij = a_ij (u_ij - ubar),   dq_i = scale sum_j dL/ds_ij k_j                       (rows, CSR)
//   dk_j = scale sum_i dL/ds_ij q_i,   dv_j = sum_i a_ij g_i (a after dropout)      (scatter_sum)
// Every row is summed by one thread in a fixed order: no atomics, one result for any number of threads.
#include <cmath>
#include <limits>

#include "kernels/cpu/attention/dropout_level.h"
#include "kernels/cpu/attention/gathered_rows.h"
#include "kernels/cpu/attention/group_products.h"
#include "kernels/cpu/attention/level_rows.h"
#include "kernels/cpu/attention/row_weights.h"
#include "kernels/cpu/levels.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {
namespace {

template <typename T>
EDGEWISE_INLINE Accumulator<T> dot(const T* a, const T* b, int64_t width) {
  return sum(Left<T, 0>(a, width).products(b));
}

// values[place of e] *= factors[e] for the edges e of row n.
template <typename Acc>
EDGEWISE_INLINE void multiply_row(const GroupEdges& edges, int n, Acc* values, const Acc* factors) {
  using V = Vec<Acc>;
  edges.for_row<V::kWidth>(n, [&](int64_t place, int64_t e, int) EDGEWISE_INLINE_LAMBDA {
    (V::load(values + place) * V::load(factors + e)).store(values + place);
  });
}

template <typename T>
EDGEWISE_INLINE NamedRows<T> named_rows(const T* base, int64_t stride, int64_t width, int64_t count) {
  return {base, stride, width, known_entries<T>(0, 1, count, stride) > 0};
}

// list[e] = values[e] for `count` numbers.
template <typename Acc>
EDGEWISE_INLINE void copy_numbers(const Acc* values, int64_t count, Acc* list) {
  using V = Vec<Acc>;
  for_vectors<Acc>(count, [&](int64_t e, int lanes)
                              EDGEWISE_INLINE_LAMBDA { V::load(values + e).store_first(list + e, lanes); });
}

// One row by itself: rows whose sum of weights is not moderate, and rows with dropout. `scores`, `weights`:
// room for the row's edges.
template <typename T>
[[gnu::noinline]] void forward_row(const AttentionForwardParams<T>& params, int64_t row,
                                   const RowPlace& place, Accumulator<T>* scores, Accumulator<T>* weights) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  const CsrView& edges = params.edges;
  const int64_t begin = edges.row_offsets[row], degree = edges.row_offsets[row + 1] - begin;
  const int32_t* const columns = edges.col_indices + begin;
  dots(params.query.head(place.batch, place.head) + place.query * params.query.row_stride,
       Gathered<T>{params.key.head(place.batch, place.head), params.key.row_stride, params.head_dim, columns,
                   degree},
       static_cast<Acc>(params.scale), scores);
  if (params.scores) copy_numbers(scores, degree, params.scores + begin);
  Acc top = 0, total = exponentials(scores, degree, top, weights);
  if (!is_moderate(total)) {
    top = largest_of(scores, degree);  // -inf for a row with no edge
    total = exponentials(scores, degree, top, weights);
  }
  params.lse[row] = top + std::log(total);
  if (params.exponentials) copy_numbers(weights, degree, params.exponentials + begin);
  if (params.dropout.p > 0) {
    Acc* const factors = scores;  // which have done their duty
    dropout_of_row(params.dropout, place.head_index, place.query, columns, degree, factors);
    for_vectors<Acc>(degree, [&](int64_t e, int) EDGEWISE_INLINE_LAMBDA {
      (V::load(weights + e) * V::load(factors + e)).store(weights + e);
    });
  }
  weighted_sum<T>(weights,
                  {params.value.head(place.batch, place.head), params.value.row_stride, params.value_dim,
                   columns, degree},
                  {params.output + row * params.value_dim, total > 0 || total != total ? 1 / total : 0});
}

// Asks for neighbouring rows that will be written: between gathered rows the hardware does not see them come.
template <typename T>
EDGEWISE_INLINE void ask_for_rows(T* begin, int64_t count) {
  for (char* at = reinterpret_cast<char*>(begin); at < reinterpret_cast<char*>(begin + count); at += 64)
    __builtin_prefetch(at, 1, 2);
}

// Rows are worked on in groups, phase by phase: the dot products of all rows, then the weights and sums of
// all rows. A row alone is a chain of latencies (scores, exp, sum, division) that short rows cannot hide. N:
// vectors of a row of keys and values when both are N whole vectors, else 0.
template <int N, typename T>
void forward_of_width(const AttentionForwardParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  const CsrView& edges = params.edges;
  const Scratch<Acc> of_row(2, largest_degree(edges.row_offsets, row_begin, row_end));
  if (params.dropout.p > 0)
    return for_rows(edges.heads, edges.queries, row_begin, row_end, [&](int64_t row, const RowPlace& place) {
      forward_row(params, row, place, of_row.buffer(0), of_row.buffer(1));
    });
  const int64_t most = group_buffer(edges.row_offsets, row_begin, row_end, group_edges(1));
  const Scratch<Acc> scratch(1, most);
  const Partials<T> partials(params.value_dim);
  GroupEdges own(most);
  Rests rests;
  Acc* const numbers = scratch.buffer(0);  // scores, then weights
  const int64_t stop = edges.row_offsets[row_end];
  const int64_t row_bytes = params.head_dim * static_cast<int64_t>(sizeof(T));
  const int most_rows = group_rows(edges.row_offsets, row_begin, row_end, row_bytes);
  for_groups(
      edges, row_begin, row_end, most_rows, group_edges(1),
      [&](const RowGroup& group) EDGEWISE_INLINE_LAMBDA {
        const int64_t batch = group.place.batch, head = group.place.head;
        const T* const queries = params.query.head(batch, head) + group.place.query * params.query.row_stride;
        T* const output = params.output + group.rows[0].row * params.value_dim;
        ask_for_rows(output, group.count * params.value_dim);
        own.take(group, edges.col_indices, edges.keys, run_bundles(edges, group.place.head_index, row_bytes));
        rests.take(group, edges.col_indices, stop);
        const GroupWalk walk{group, own, rests, edges.col_indices, stop};
        const auto kept_in = [&](Acc* list) { return KeptNumbers<Acc>{list, walk.end(), stop}; };
        group_dots<N, T>(
            walk,
            named_rows<T>(params.key.head(batch, head), params.key.row_stride, params.head_dim, edges.keys),
            OwnRows<T>{queries, params.query.row_stride}, static_cast<Acc>(params.scale), numbers,
            kept_in(params.scores));
        alignas(64) Acc totals[kGroupRows];
        group_sums<N, T>(
            walk,
            named_rows<T>(params.value.head(batch, head), params.value.row_stride, params.value_dim,
                          edges.keys),
            numbers, partials, Exponential{},
            [&](int n, Acc total) EDGEWISE_INLINE_LAMBDA {
              totals[n] = total;
              return total == 0 ? Acc{0} : 1 / total;
            },
            [&](int n) EDGEWISE_INLINE_LAMBDA { return output + n * params.value_dim; },
            kept_in(params.exponentials));
        Acc* const lse = params.lse + group.rows[0].row;
        for_vectors<Acc>(group.count, [&](int64_t n, int lanes) EDGEWISE_INLINE_LAMBDA {
          log(V::load(totals + n)).store_first(lse + n, lanes);
        });
        for (int n = 0; n < group.count; ++n) {
          if (is_moderate(totals[n])) continue;
          if (group.rows[n].degree == 0) {
            lse[n] = -std::numeric_limits<Acc>::infinity();
            continue;
          }
          RowPlace place = group.place;
          place.query = group.query(n);
          forward_row(params, group.rows[n].row, place, of_row.buffer(0), of_row.buffer(1));
        }
      });
}

template <typename T>
void forward(const AttentionForwardParams<T>& params, int64_t row_begin, int64_t row_end) {
  constexpr int64_t kWidth = Vec<Accumulator<T>>::kWidth;
  switch (params.head_dim == params.value_dim ? params.head_dim : 0) {
    case 2 * kWidth:
      return forward_of_width<2>(params, row_begin, row_end);
    case 4 * kWidth:
      return forward_of_width<4>(params, row_begin, row_end);
    default:
      return forward_of_width<0>(params, row_begin, row_end);
  }
}

// Per-edge numbers of a group of rows.
template <typename Acc>
struct EdgeNumbers {
  Acc *scores, *weights, *u, *logit_grads;
};

// Exact effect of removing each edge, a / (1 - a) (u - ubar). Where one edge holds most of the weight that
// form cancels for it, and the mean of u over the *other* edges is formed directly. An only edge leaves
// output 0: credit u. Overwrites a score. `credit`: of the row's edges, in their own order.
template <typename Acc>
EDGEWISE_INLINE void leave_one_out(const GroupEdges& edges, int n, int64_t degree,
                                   const EdgeNumbers<Acc>& row, Acc ubar, Acc* credit) {
  using V = Vec<Acc>;
  if (degree == 1) {
    credit[0] = row.u[edges.rest_place(n)];
    return;
  }
  const V mean = V::broadcast(ubar), one = V::broadcast(1);
  edges.for_row<V::kWidth>(n, [&](int64_t place, int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
    const V weight = V::load(row.weights + place);
    (weight / (one - weight) * (V::load(row.u + place) - mean)).store_first(credit + e, lanes);
  });
  if (largest_of_row(edges, n, row.weights) <= Acc{0.5}) return;
  const Acc top_score = largest_of_row(edges, n, row.scores);
  int64_t top = -1, top_place = -1;
  edges.for_row<V::kWidth>(n, [&](int64_t place, int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
    for (int lane = 0; lane < lanes; ++lane)
      if (top < 0 && row.scores[place + lane] == top_score) top = e + lane, top_place = place + lane;
  });
  if (top < 0) return;  // no score is a number
  row.scores[top_place] = -std::numeric_limits<Acc>::infinity();
  const V runner_up = V::broadcast(largest_of_row(edges, n, row.scores));
  V others = V::zero(), others_u = V::zero();
  edges.for_row<V::kWidth>(n, [&](int64_t place, int64_t, int lanes) EDGEWISE_INLINE_LAMBDA {
    const V share = keep_first(exp(V::load(row.scores + place) - runner_up), lanes, V::zero());
    others = others + share;
    others_u = others_u + share * keep_first(V::load(row.u + place), lanes, V::zero());
  });
  credit[top] = row.weights[top_place] * (row.u[top_place] - sum(others_u) / sum(others));
}

// `credit`: of the row's edges, in their own order.
template <typename Acc>
EDGEWISE_INLINE void credit_of_row(CreditRule rule, const GroupEdges& edges, int n, int64_t degree,
                                   const EdgeNumbers<Acc>& row, Acc ubar, Acc* credit) {
  using V = Vec<Acc>;
  switch (rule) {
    case CreditRule::kNone:
      return;
    case CreditRule::kLogit:
      return edges.for_row<V::kWidth>(n, [&](int64_t place, int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
        V::load(row.logit_grads + place).store_first(credit + e, lanes);
      });
    case CreditRule::kPaper:
      return edges.for_row<V::kWidth>(n, [&](int64_t place, int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
        (V::load(row.logit_grads + place) * V::load(row.scores + place)).store_first(credit + e, lanes);
      });
    case CreditRule::kLeaveOneOut:
      return leave_one_out(edges, n, degree, row, ubar, credit);
  }
}

template <int N, typename T>
void backward_rows_in_groups(const AttentionBackwardParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  const CsrView& edges = params.edges;
  const int64_t most = group_buffer(edges.row_offsets, row_begin, row_end, group_edges(4));
  const Scratch<Acc> scratch(4, most);
  const Scratch<Acc> factor_scratch(
      1, params.dropout.p > 0 ? largest_degree(edges.row_offsets, row_begin, row_end) : 0);
  const Partials<T> partials(params.head_dim);
  GroupEdges own(most);
  Rests rests;
  const EdgeNumbers<Acc> all{scratch.buffer(0), scratch.buffer(1), scratch.buffer(2), scratch.buffer(3)};
  Acc* const factors = factor_scratch.buffer(0);
  const Acc scale = static_cast<Acc>(params.scale);
  const bool keep_weights = params.dropout.p > 0 || params.rule == CreditRule::kLeaveOneOut;
  const int64_t stop = edges.row_offsets[row_end];
  const int64_t row_bytes = params.head_dim * static_cast<int64_t>(sizeof(T));
  for_groups(
      edges, row_begin, row_end, group_rows(edges.row_offsets, row_begin, row_end, row_bytes), group_edges(4),
      [&](const RowGroup& group) EDGEWISE_INLINE_LAMBDA {
        const int64_t batch = group.place.batch, head = group.place.head;
        const T* const queries = params.query.head(batch, head) + group.place.query * params.query.row_stride;
        const auto keys =
            named_rows<T>(params.key.head(batch, head), params.key.row_stride, params.head_dim, edges.keys);
        const auto values = named_rows<T>(params.value.head(batch, head), params.value.row_stride,
                                          params.value_dim, edges.keys);
        const T* const grads = params.grad_output + group.rows[0].row * params.value_dim;
        const OwnRows<T> query_rows{queries, params.query.row_stride}, grad_rows{grads, params.value_dim};
        own.take(group, edges.col_indices, edges.keys, run_bundles(edges, group.place.head_index, row_bytes));
        rests.take(group, edges.col_indices, stop);
        const GroupWalk walk{group, own, rests, edges.col_indices, stop};
        const auto take_kept = [&](const Acc* list, Acc* to) EDGEWISE_INLINE_LAMBDA {
          for (int n = 0; n < group.count; ++n)
            own.for_row<V::kWidth>(n, [&](int64_t place, int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
              load_lanes(list + group.rows[n].begin + e, lanes).store(to + place);
            });
        };
        if (params.exponentials)
          take_kept(params.exponentials, all.weights);
        else if (params.scores)
          take_kept(params.scores, all.scores);
        else
          group_dots<N, T>(walk, keys, query_rows, scale, all.scores);
        group_dots<N, T>(walk, values, grad_rows, Acc{1}, all.u);
        for (int n = 0; n < group.count; ++n) {
          const GroupRow& row = group.rows[n];
          if (row.degree == 0) continue;
          if (params.dropout.p > 0) {
            dropout_of_row(params.dropout, group.place.head_index, group.query(n),
                           edges.col_indices + row.begin, row.degree, factors);
            multiply_row(own, n, all.u, factors);
          }
          // Normalised by the row's own sum, as in the forward pass: lse alone loses log(total) beside
          // a huge maximum.
          const Acc total = params.exponentials ? total_of_row(own, n, all.weights)
                                                : weights_of_row(own, n, all.scores, all.weights);
          const Acc ubar =
              dot(grad_rows.row(n), params.output + row.row * params.value_dim, params.value_dim);
          const V share = V::broadcast(1 / total), mean = V::broadcast(ubar);
          own.for_row<V::kWidth>(n, [&](int64_t place, int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
            const V weight = V::load(all.weights + place) * share,
                    logit_grad = weight * (V::load(all.u + place) - mean);
            if (keep_weights) weight.store(all.weights + place);
            logit_grad.store(all.logit_grads + place);
            weight.store_first(params.weights + row.begin + e, lanes);
            logit_grad.store_first(params.logit_grads + row.begin + e, lanes);
          });
          credit_of_row(params.rule, own, n, row.degree, all, ubar,
                        params.credit ? params.credit + row.begin : nullptr);
          if (params.dropout.p > 0)
            own.for_row<V::kWidth>(n, [&](int64_t place, int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
              (V::load(all.weights + place) * V::load(factors + e))
                  .store_first(params.weights + row.begin + e, lanes);
            });
        }
        T* const grad_query = params.grad_query + group.rows[0].row * params.head_dim;
        group_sums<N, T>(
            walk, keys, all.logit_grads, partials, Plain{},
            [&](int, Acc) EDGEWISE_INLINE_LAMBDA { return scale; },
            [&](int n) EDGEWISE_INLINE_LAMBDA { return grad_query + n * params.head_dim; });
      });
}

// A row by itself, bundle after bundle: u, its logit gradients and `dq` in one go, so that keys and values
// are read once each and nothing but the weights is put aside. `dq` of a bundle is summed while u of the next
// is formed.
template <int N, typename T>
void backward_rows_one_by_one(const AttentionBackwardParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  constexpr int kVectors = kBundle / V::kWidth;
  constexpr int64_t kListAhead = 512;  // edges whose lines are asked for before they are written
  const CsrView& edges = params.edges;
  const Scratch<Acc> scratch(2, largest_degree(edges.row_offsets, row_begin, row_end));
  const Acc scale = static_cast<Acc>(params.scale);
  const int64_t stop = edges.row_offsets[row_end];
  for_rows(edges.heads, edges.queries, row_begin, row_end, [&](int64_t row, const RowPlace& place) {
    const int64_t begin = edges.row_offsets[row], degree = edges.row_offsets[row + 1] - begin;
    const int64_t bundled = degree / kBundle * kBundle;
    const int32_t* const indices = edges.col_indices + begin;
    const auto keys = named_rows<T>(params.key.head(place.batch, place.head), params.key.row_stride,
                                    params.head_dim, edges.keys);
    const auto values = named_rows<T>(params.value.head(place.batch, place.head), params.value.row_stride,
                                      params.value_dim, edges.keys);
    const T* const grad = params.grad_output + row * params.value_dim;
    const Acc *scores = nullptr, *weights = nullptr;
    Acc total;
    // Normalised by the row's own sum, as in the forward pass: lse alone loses log(total) beside a huge
    // maximum.
    if (params.exponentials) {
      weights = params.exponentials + begin;
      total = total_of(weights, degree);
    } else {
      if (!params.scores)
        dots_of<N>(params.query.head(place.batch, place.head) + place.query * params.query.row_stride,
                   Gathered<T>{keys.base, keys.stride, keys.width, indices, degree}, scale,
                   scratch.buffer(1));
      scores = params.scores ? params.scores + begin : scratch.buffer(1);
      weights = scratch.buffer(0);
      total = exponentials(scores, degree, Acc{0}, scratch.buffer(0));
      if (!is_moderate(total) && degree > 0) total = weights_by_largest(scores, degree, scratch.buffer(0));
    }
    const Acc ubar = dot(grad, params.output + row * params.value_dim, params.value_dim);
    const V share = V::broadcast(1 / total), mean = V::broadcast(ubar);
    const auto logit_grads = [&](V u, int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
      const V weight = load_lanes(weights + e, lanes) * share, logit_grad = weight * (u - mean);
      if (params.rule == CreditRule::kLogit) logit_grad.store_first(params.credit + begin + e, lanes);
      if (params.rule == CreditRule::kPaper)
        (logit_grad * load_lanes(scores + e, lanes)).store_first(params.credit + begin + e, lanes);
      weight.store_first(params.weights + begin + e, lanes);  // perhaps over what was kept
      logit_grad.store_first(params.logit_grads + begin + e, lanes);
      return logit_grad;
    };
    const Left<T, N> left(grad, 0);
    RunningSum<N, T> sum;
    V before[kVectors];  // logit gradients of the bundle before this one
    for (int64_t b = 0; b < bundled; b += kBundle) {
      const int32_t* const bundle = indices + b;
      if (begin + b + kListAhead < stop)
        __builtin_prefetch(params.logit_grads + begin + b + kListAhead, 1, 2);
      if (values.ahead && begin + b + (kBundlesAhead + 1) * kBundle <= stop) {
        values.ask(bundle + kBundlesAhead * kBundle, kBundle);
        keys.ask(bundle + kBundlesAhead * kBundle, kBundle);
      }
      V u[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        u[v] = transpose_reduce<Acc>(
            [&](int i)
                EDGEWISE_INLINE_LAMBDA { return left.products(values.row(bundle[v * V::kWidth + i])); },
            V::kWidth);
      if (b > 0) sum.add_bundle(before, keys, bundle - kBundle);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) before[v] = logit_grads(u[v], b + v * V::kWidth, V::kWidth);
    }
    if (bundled > 0) sum.add_bundle(before, keys, indices + bundled - kBundle);
    if (degree > bundled) {
      alignas(64) Acc rest[2 * kBundle];
      dots_of<N>(grad,
                 Gathered<T>{values.base, values.stride, values.width, indices + bundled, degree - bundled},
                 Acc{1}, rest);
      for_vectors<Acc>(degree - bundled, [&](int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
        logit_grads(V::load(rest + e), bundled + e, lanes).store(rest + e);
      });
      sum.add_rest(rest, keys, indices + bundled, degree - bundled);
    }
    sum.store(params.grad_query + row * params.head_dim, scale);
  });
}

// Rows of many edges hide their own latencies; in groups short rows hide each other's, and wide rows find the
// keys and values of others in L1, unless there are too many of them. Of the head, as run_bundles: the sums
// round differently.
template <int N, typename T>
EDGEWISE_INLINE bool one_by_one(const AttentionBackwardParams<T>& params, int64_t head_index) {
  constexpr int64_t kNarrow = 128, kLargeHead = 1024 * 1024;  // bytes
  const int64_t row_bytes = params.head_dim * static_cast<int64_t>(sizeof(T));
  return N > 0 && params.dropout.p == 0 && params.rule != CreditRule::kLeaveOneOut &&
         (row_bytes <= kNarrow || params.edges.keys * row_bytes >= kLargeHead) &&
         rows_meet(params.edges, head_index);
}

template <int N, typename T>
void backward_rows_of_width(const AttentionBackwardParams<T>& params, int64_t row_begin, int64_t row_end) {
  if constexpr (N > 0 && !std::is_same_v<T, Bf16>) {
    const int64_t queries = params.edges.queries;
    for (int64_t begin = row_begin, end; begin < row_end; begin = end) {  // heads of one kind at a time
      int64_t head = begin / queries;
      const bool alone = one_by_one<N>(params, head);
      do end = ++head * queries;
      while (end < row_end && one_by_one<N>(params, head) == alone);
      if (end > row_end) end = row_end;
      if (alone)
        backward_rows_one_by_one<N>(params, begin, end);
      else
        backward_rows_in_groups<N>(params, begin, end);
    }
  } else {
    backward_rows_in_groups<N>(params, row_begin, row_end);
  }
}

template <typename T>
void backward_rows(const AttentionBackwardParams<T>& params, int64_t row_begin, int64_t row_end) {
  constexpr int64_t kWidth = Vec<Accumulator<T>>::kWidth;
  switch (params.head_dim == params.value_dim ? params.head_dim : 0) {
    case 2 * kWidth:
      return backward_rows_of_width<2>(params, row_begin, row_end);
    case 4 * kWidth:
      return backward_rows_of_width<4>(params, row_begin, row_end);
    default:
      return backward_rows_of_width<0>(params, row_begin, row_end);
  }
}

template <typename T>
void probe_credit(const ProbeCreditParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  const CsrView& edges = params.probes;
  const Scratch<Acc> scratch(2, largest_degree(edges.row_offsets, row_begin, row_end));
  Acc *const scores = scratch.buffer(0), *const u = scratch.buffer(1);
  for_rows(edges.heads, edges.queries, row_begin, row_end, [&](int64_t row, const RowPlace& place) {
    const int64_t begin = edges.row_offsets[row], degree = edges.row_offsets[row + 1] - begin;
    if (degree == 0) return;
    const int64_t stop = edges.row_offsets[row_end];
    const int32_t* columns = edges.col_indices + begin;
    const T* query = params.query.head(place.batch, place.head) + place.query * params.query.row_stride;
    const T* grad = params.grad_output + row * params.value_dim;
    if (row + 1 < row_end) {
      prefetch_row(query + params.query.row_stride, params.head_dim);
      prefetch_row(grad + params.value_dim, params.value_dim);
      prefetch_row(params.output + (row + 1) * params.value_dim, params.value_dim);
    }
    const Acc ubar = dot(grad, params.output + row * params.value_dim, params.value_dim);
    dots(query,
         {params.key.head(place.batch, place.head), params.key.row_stride, params.head_dim, columns, degree,
          known_entries<T>(begin, stop, edges.keys, params.key.row_stride)},
         static_cast<Acc>(params.scale), scores);
    dots(grad,
         {params.value.head(place.batch, place.head), params.value.row_stride, params.value_dim, columns,
          degree, known_entries<T>(begin, stop, edges.keys, params.value.row_stride)},
         Acc{1}, u);
    // b / (1 + b) with b = exp(s - lse); 1 when the row is empty (lse = -inf).
    const V lse = V::broadcast(params.lse[row]), mean = V::broadcast(ubar), one = V::broadcast(1);
    for_vectors<Acc>(degree, [&](int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
      const V share = one / (one + exp(lse - V::load(scores + e)));
      (share * (V::load(u + e) - mean)).store_first(params.credit + begin + e, lanes);
    });
  });
}

}  // namespace

template <typename T>
AttentionKernels<T> attention_kernels() {
  return {forward<T>, backward_rows<T>, probe_credit<T>};
}
template AttentionKernels<float> attention_kernels<float>();
template AttentionKernels<Bf16> attention_kernels<Bf16>();
#if defined(EDGEWISE_PORTABLE_LEVEL)
template AttentionKernels<double> attention_kernels<double>();
#endif

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
