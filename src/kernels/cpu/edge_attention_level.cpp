// Attention over edges, compiled once per CPU level (simd.h).
//
// Row i attends over its edges N_i:  s_ij = scale q_i . k_j,  a = softmax over N_i,  o_i = sum_j a_ij v_j.
// Backward, with g = dL/do_i, u_ij = g . v_j (times the dropout factor) and ubar = g . o_i:
//   dL/ds_ij = a_ij (u_ij - ubar),   dq_i = scale sum_j dL/ds_ij k_j                       (rows, CSR)
//   dk_j = scale sum_i dL/ds_ij q_i,   dv_j = sum_i a_ij g_i (a after dropout)      (scatter_sum)
// Every row is summed by one thread in a fixed order: no atomics, one result for any number of threads. A row
// is a sequence of short loops over buffers that stay in the L1 cache.
#include <cmath>
#include <limits>

#include "kernels/cpu/dropout_level.h"
#include "kernels/cpu/gathered_rows.h"
#include "kernels/cpu/level_rows.h"
#include "kernels/cpu/levels.h"
#include "kernels/cpu/row_windows.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {
namespace {

// Calls body(vector, first entry, lanes that count) over a buffer of `count` entries.
template <typename Acc, typename Body>
EDGEWISE_INLINE void for_vectors(int64_t count, const Body& body) {
  constexpr int kWidth = Vec<Acc>::kWidth;
  int64_t e = 0;
  for (; e + kWidth <= count; e += kWidth) body(e, kWidth);
  if (e < count) body(e, static_cast<int>(count - e));
}

template <typename Acc>
EDGEWISE_INLINE Acc largest_of(const Acc* values, int64_t count) {
  using V = Vec<Acc>;
  const V lowest = V::broadcast(-std::numeric_limits<Acc>::infinity());
  V top = lowest;
  for_vectors<Acc>(count, [&](int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
    top = max(top, keep_first(V::load(values + e), lanes, lowest));
  });
  return largest(top);
}

// out = exp(values - shift) and its sum. The unused lanes of the last vector become 0.
template <typename Acc>
EDGEWISE_INLINE Acc exponentials(const Acc* values, Acc shift, int64_t count, Acc* out) {
  using V = Vec<Acc>;
  const V minus = V::broadcast(shift);
  V total = V::zero();
  for_vectors<Acc>(count, [&](int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
    const V weight = keep_first(exp(V::load(values + e) - minus), lanes, V::zero());
    weight.store(out + e);
    total = total + weight;
  });
  return sum(total);
}

template <typename T>
EDGEWISE_INLINE Accumulator<T> dot(const T* a, const T* b, int64_t width) {
  return sum(Left<T, 0>(a, width).products(b));
}

template <typename Acc>
EDGEWISE_INLINE void multiply_by(Acc* values, const Acc* factors, int64_t count) {
  using V = Vec<Acc>;
  for_vectors<Acc>(count, [&](int64_t e, int) EDGEWISE_INLINE_LAMBDA {
    (V::load(values + e) * V::load(factors + e)).store(values + e);
  });
}

// Rows are worked on in groups (row_windows.h), phase by phase: the dot products of all rows, then all
// softmaxes, then all sums. A row alone is a chain of latencies (largest score, exp, sum, division) that
// short rows cannot hide. N: vectors of a row of keys and values when both are N whole vectors, else 0.
template <int N, typename T>
void forward_of_width(const AttentionForwardParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  const CsrView& edges = params.edges;
  const int64_t padded_dim = (params.value_dim + 15) / 16 * 16;
  const Scratch<Acc> scratch(1, group_buffer(edges.row_offsets, row_begin, row_end, group_edges(1)));
  const Scratch<Acc> factor_scratch(
      1, params.dropout.p > 0 ? largest_degree(edges.row_offsets, row_begin, row_end) : 0);
  const Scratch<Acc> partials(kGroupRows, padded_dim);
  Acc *const all_scores = scratch.buffer(0), *const factors = factor_scratch.buffer(0);
  const bool wide_keys = params.head_dim * static_cast<int64_t>(sizeof(T)) >= kWideRow;
  const int64_t stop = edges.row_offsets[row_end];
  for_groups(edges, row_begin, row_end, group_edges(1), [&](const RowGroup& group) EDGEWISE_INLINE_LAMBDA {
    const int64_t batch = group.place.batch, head = group.place.head;
    const T* const queries = params.query.head(batch, head);
    const T* const keys = params.key.head(batch, head);
    const T* const values = params.value.head(batch, head);
    Acc shares[kGroupRows];
    group.for_turns(
        wide_keys, edges.col_indices, [&](const GroupRow& row, const Turn& turn) EDGEWISE_INLINE_LAMBDA {
          dots_of<N>(
              queries + group.query(turn.number) * params.query.row_stride,
              Gathered<T>{keys, params.key.row_stride, params.head_dim,
                          edges.col_indices + row.begin + turn.first, turn.count,
                          known_entries<T>(row.begin + turn.first, stop, edges.keys, params.key.row_stride)},
              static_cast<Acc>(params.scale), all_scores + row.buffer + turn.first);
        });
    for (int n = 0; n < group.count; ++n) {
      const GroupRow& row = group.rows[n];
      Acc* const scores = all_scores + row.buffer;
      const Acc top = largest_of(scores, row.degree);  // -inf for a row with no edge
      const Acc total = exponentials(scores, top, row.degree, scores);
      shares[n] = total > 0 || total != total ? 1 / total : 0;
      params.lse[row.row] = top + std::log(total);
      if (params.dropout.p > 0) {
        dropout_of_row(params.dropout, group.place.head_index, group.query(n), edges.col_indices + row.begin,
                       row.degree, factors);
        multiply_by(scores, factors, row.degree);
      }
    }
    group.for_turns(
        true, edges.col_indices, [&](const GroupRow& row, const Turn& turn) EDGEWISE_INLINE_LAMBDA {
          SumTarget<T> target{params.output + row.row * params.value_dim, shares[turn.number]};
          target.partial = partials.buffer(turn.number);
          target.first = turn.is_first, target.last = turn.is_last;
          sum_of<N>(all_scores + row.buffer + turn.first,
                    Gathered<T>{
                        values, params.value.row_stride, params.value_dim,
                        edges.col_indices + row.begin + turn.first, turn.count,
                        known_entries<T>(row.begin + turn.first, stop, edges.keys, params.value.row_stride)},
                    target);
        });
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

template <typename Acc>
struct RowSoftmax {
  Acc top;    // the largest score of the row
  Acc share;  // 1 / sum of exp(s - top)
  Acc ubar;   // dL/do_i . o_i
};

// Exact effect of removing each edge, a / (1 - a) (u - ubar). Where one edge holds most of the weight that
// form cancels for it, and the mean of u over the *other* edges is formed directly. An only edge leaves
// output 0: credit u. Overwrites `scores`.
template <typename Acc>
EDGEWISE_INLINE void leave_one_out(Acc* scores, const RowSoftmax<Acc>& softmax, const Acc* weights,
                                   const Acc* u, int64_t degree, Acc* credit) {
  using V = Vec<Acc>;
  if (degree == 1) {
    credit[0] = u[0];
    return;
  }
  const V mean = V::broadcast(softmax.ubar), one = V::broadcast(1);
  for_vectors<Acc>(degree, [&](int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
    const V weight = V::load(weights + e);
    (weight / (one - weight) * (V::load(u + e) - mean)).store_first(credit + e, lanes);
  });
  if (softmax.share <= Acc{0.5}) return;  // the largest weight is 1 * share
  int64_t top = 0;
  while (top + 1 < degree && scores[top] != softmax.top) ++top;
  scores[top] = -std::numeric_limits<Acc>::infinity();
  const V runner_up = V::broadcast(largest_of(scores, degree));
  V others = V::zero(), others_u = V::zero();
  for_vectors<Acc>(degree, [&](int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
    const V share = keep_first(exp(V::load(scores + e) - runner_up), lanes, V::zero());
    others = others + share;
    others_u = others_u + share * keep_first(V::load(u + e), lanes, V::zero());
  });
  credit[top] = weights[top] * (u[top] - sum(others_u) / sum(others));
}

// Per-edge numbers of one row.
template <typename Acc>
struct RowEdges {
  Acc* scores;
  const Acc *weights, *u, *logit_grads;
};

template <typename Acc>
EDGEWISE_INLINE void credit_of_row(CreditRule rule, const RowSoftmax<Acc>& softmax, const RowEdges<Acc>& row,
                                   int64_t degree, Acc* credit) {
  using V = Vec<Acc>;
  switch (rule) {
    case CreditRule::kNone:
      return;
    case CreditRule::kLogit:
      return for_vectors<Acc>(degree, [&](int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
        V::load(row.logit_grads + e).store_first(credit + e, lanes);
      });
    case CreditRule::kPaper:
      return for_vectors<Acc>(degree, [&](int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
        (V::load(row.logit_grads + e) * V::load(row.scores + e)).store_first(credit + e, lanes);
      });
    case CreditRule::kLeaveOneOut:
      return leave_one_out(row.scores, softmax, row.weights, row.u, degree, credit);
  }
}

template <int N, typename T>
void backward_rows_of_width(const AttentionBackwardParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  const CsrView& edges = params.edges;
  const Scratch<Acc> scratch(4, group_buffer(edges.row_offsets, row_begin, row_end, group_edges(4)));
  const Scratch<Acc> factor_scratch(
      1, params.dropout.p > 0 ? largest_degree(edges.row_offsets, row_begin, row_end) : 0);
  const Scratch<Acc> partials(kGroupRows, (params.head_dim + 15) / 16 * 16);
  const int64_t widest = params.head_dim > params.value_dim ? params.head_dim : params.value_dim;
  const bool wide = widest * static_cast<int64_t>(sizeof(T)) >= kWideRow;
  Acc *const all_scores = scratch.buffer(0), *const all_weights = scratch.buffer(1),
             *const all_u = scratch.buffer(2), *const all_logit_grads = scratch.buffer(3),
             *const factors = factor_scratch.buffer(0);
  const int64_t stop = edges.row_offsets[row_end];
  for_groups(edges, row_begin, row_end, group_edges(4), [&](const RowGroup& group) EDGEWISE_INLINE_LAMBDA {
    const int64_t batch = group.place.batch, head = group.place.head;
    const T* const queries = params.query.head(batch, head);
    const T* const keys = params.key.head(batch, head);
    const T* const values = params.value.head(batch, head);
    group.for_turns(wide, edges.col_indices, [&](const GroupRow& r, const Turn& turn) EDGEWISE_INLINE_LAMBDA {
      dots_of<N>(queries + group.query(turn.number) * params.query.row_stride,
                 Gathered<T>{keys, params.key.row_stride, params.head_dim,
                             edges.col_indices + r.begin + turn.first, turn.count,
                             known_entries<T>(r.begin + turn.first, stop, edges.keys, params.key.row_stride)},
                 static_cast<Acc>(params.scale), all_scores + r.buffer + turn.first);
    });
    group.for_turns(wide, edges.col_indices, [&](const GroupRow& r, const Turn& turn) EDGEWISE_INLINE_LAMBDA {
      dots_of<N>(
          params.grad_output + r.row * params.value_dim,
          Gathered<T>{values, params.value.row_stride, params.value_dim,
                      edges.col_indices + r.begin + turn.first, turn.count,
                      known_entries<T>(r.begin + turn.first, stop, edges.keys, params.value.row_stride)},
          Acc{1}, all_u + r.buffer + turn.first);
    });
    for (int n = 0; n < group.count; ++n) {
      const GroupRow& r = group.rows[n];
      if (r.degree == 0) continue;
      Acc *const scores = all_scores + r.buffer, *const weights = all_weights + r.buffer,
                 *const u = all_u + r.buffer;
      if (params.dropout.p > 0) {
        dropout_of_row(params.dropout, group.place.head_index, group.query(n), edges.col_indices + r.begin,
                       r.degree, factors);
        multiply_by(u, factors, r.degree);
      }
      // Normalised by the row's own sum, as in the forward pass: lse alone loses log(total) beside
      // a huge maximum.
      const Acc top = largest_of(scores, r.degree);
      const Acc total = exponentials(scores, top, r.degree, weights);
      const Acc ubar = dot(params.grad_output + r.row * params.value_dim,
                           params.output + r.row * params.value_dim, params.value_dim);
      const RowSoftmax<Acc> softmax{top, 1 / total, ubar};
      const V share = V::broadcast(softmax.share), mean = V::broadcast(ubar);
      Acc* const logit_grads = all_logit_grads + r.buffer;
      for_vectors<Acc>(r.degree, [&](int64_t e, int) EDGEWISE_INLINE_LAMBDA {
        const V weight = V::load(weights + e) * share;
        weight.store(weights + e);
        (weight * (V::load(u + e) - mean)).store(logit_grads + e);
      });
      credit_of_row(params.rule, softmax, {scores, weights, u, logit_grads}, r.degree,
                    params.credit ? params.credit + r.begin : nullptr);
      if (params.dropout.p > 0) multiply_by(weights, factors, r.degree);
      for_vectors<Acc>(r.degree, [&](int64_t e, int lanes) EDGEWISE_INLINE_LAMBDA {
        V::load(weights + e).store_first(params.weights + r.begin + e, lanes);
        V::load(logit_grads + e).store_first(params.logit_grads + r.begin + e, lanes);
      });
    }
    group.for_turns(true, edges.col_indices, [&](const GroupRow& r, const Turn& turn) EDGEWISE_INLINE_LAMBDA {
      SumTarget<T> target{params.grad_query + r.row * params.head_dim, static_cast<Acc>(params.scale)};
      target.partial = partials.buffer(turn.number);
      target.first = turn.is_first, target.last = turn.is_last;
      sum_of<N>(all_logit_grads + r.buffer + turn.first,
                Gathered<T>{keys, params.key.row_stride, params.head_dim,
                            edges.col_indices + r.begin + turn.first, turn.count},
                target);
    });
  });
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
