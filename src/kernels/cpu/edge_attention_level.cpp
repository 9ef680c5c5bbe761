// Attention over edges, compiled once per CPU level (simd.h).
//
// Row i attends over its edges N_i:  s_ij = scale q_i . k_j,  a = softmax over N_i,  o_i = sum_j a_ij v_j.
// Backward, with g = dL/do_i, u_ij = g . v_j (times the dropout factor) and ubar = g . o_i:
//   dL/ds_ij = a_ij (u_ij - ubar),   dq_i = scale sum_j dL/ds_ij k_j                       (rows, CSR)
//   dk_j = scale sum_i dL/ds_ij q_i,   dv_j = sum_i a_ij g_i (a after dropout)             (columns, CSC)
// Every row and column is summed by one thread in a fixed order: no atomics, one result for any number of
// threads. A row is a sequence of short loops over buffers that stay in the L1 cache.
#include <cmath>
#include <limits>

#include "kernels/cpu/dropout_level.h"
#include "kernels/cpu/gathered_rows.h"
#include "kernels/cpu/level_rows.h"
#include "kernels/cpu/levels.h"

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

// Rows are worked on in groups, phase by phase: the dot products of all rows, then all softmaxes, then all
// sums. A row alone is a chain of latencies (largest score, exp, sum, division) that short rows cannot hide.
constexpr int kGroupRows = 16;
constexpr int64_t kGroupEdges = 1024;

struct GroupRow {
  int64_t row, begin, degree, buffer;  // `buffer`: where its scores start
  RowPlace place;
};

// body(rows of the group, how many) over groups of the rows begin .. end.
template <typename Body>
EDGEWISE_INLINE void for_groups(const CsrView& edges, int64_t begin, int64_t end, const Body& body) {
  GroupRow group[kGroupRows];
  int count = 0;
  int64_t used = 0;
  for_rows(edges.heads, edges.queries, begin, end,
           [&](int64_t row, const RowPlace& place) EDGEWISE_INLINE_LAMBDA {
             const int64_t first = edges.row_offsets[row], degree = edges.row_offsets[row + 1] - first;
             group[count++] = {row, first, degree, used, place};
             used += (degree + 15) / 16 * 16;  // whole vectors
             if (count == kGroupRows || used >= kGroupEdges || row + 1 == end) {
               body(group, count);
               count = 0;
               used = 0;
             }
           });
}

// Room for the buffers of a group.
inline int64_t group_buffer(const int64_t* offsets, int64_t begin, int64_t end) {
  return kGroupEdges + largest_degree(offsets, begin, end) + 32;
}

template <typename T>
void forward(const AttentionForwardParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  const CsrView& edges = params.edges;
  const Scratch<Acc> scratch(2, group_buffer(edges.row_offsets, row_begin, row_end));
  Acc *const all_scores = scratch.buffer(0), *const factors = scratch.buffer(1);
  const int64_t stop = edges.row_offsets[row_end];
  for_groups(edges, row_begin, row_end, [&](const GroupRow* group, int count) EDGEWISE_INLINE_LAMBDA {
    Acc shares[kGroupRows];
    for (int n = 0; n < count; ++n) {
      const auto& [row, begin, degree, buffer, place] = group[n];
      const T* query = params.query.head(place.batch, place.head) + place.query * params.query.row_stride;
      const Gathered<T> keys{params.key.head(place.batch, place.head),
                             params.key.row_stride,
                             params.head_dim,
                             edges.col_indices + begin,
                             degree,
                             known_entries<T>(begin, stop, edges.keys, params.key.row_stride)};
      dots(query, keys, static_cast<Acc>(params.scale), all_scores + buffer);
    }
    for (int n = 0; n < count; ++n) {
      Acc* const scores = all_scores + group[n].buffer;
      const Acc top = largest_of(scores, group[n].degree);  // -inf for a row with no edge
      const Acc total = exponentials(scores, top, group[n].degree, scores);
      shares[n] = total > 0 || total != total ? 1 / total : 0;
      params.lse[group[n].row] = top + std::log(total);
    }
    for (int n = 0; n < count; ++n) {
      const auto& [row, begin, degree, buffer, place] = group[n];
      Acc* const scores = all_scores + buffer;
      const int32_t* columns = edges.col_indices + begin;
      if (params.dropout.p > 0) {
        dropout_of_row(params.dropout, place.head_index, place.query, columns, degree, factors);
        multiply_by(scores, factors, degree);
      }
      const Gathered<T> values{params.value.head(place.batch, place.head),
                               params.value.row_stride,
                               params.value_dim,
                               columns,
                               degree,
                               known_entries<T>(begin, stop, edges.keys, params.value.row_stride)};
      weighted_sum<T>(scores, values, {params.output + row * params.value_dim, shares[n]});
    }
  });
}

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

template <typename T>
void backward_rows(const AttentionBackwardParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  const CsrView& edges = params.edges;
  const Scratch<Acc> scratch(5, group_buffer(edges.row_offsets, row_begin, row_end));
  Acc *const all_scores = scratch.buffer(0), *const all_weights = scratch.buffer(1),
             *const all_u = scratch.buffer(2), *const all_logit_grads = scratch.buffer(3),
             *const factors = scratch.buffer(4);
  const int64_t stop = edges.row_offsets[row_end];
  for_groups(edges, row_begin, row_end, [&](const GroupRow* group, int count) EDGEWISE_INLINE_LAMBDA {
    const auto keys_of = [&](const GroupRow& r, int64_t known) EDGEWISE_INLINE_LAMBDA {
      return Gathered<T>{params.key.head(r.place.batch, r.place.head),
                         params.key.row_stride,
                         params.head_dim,
                         edges.col_indices + r.begin,
                         r.degree,
                         known};
    };
    for (int n = 0; n < count; ++n) {
      const GroupRow& r = group[n];
      const RowPlace& place = r.place;
      const T* query = params.query.head(place.batch, place.head) + place.query * params.query.row_stride;
      dots(query, keys_of(r, known_entries<T>(r.begin, stop, edges.keys, params.key.row_stride)),
           static_cast<Acc>(params.scale), all_scores + r.buffer);
      const Gathered<T> values{params.value.head(place.batch, place.head),
                               params.value.row_stride,
                               params.value_dim,
                               edges.col_indices + r.begin,
                               r.degree,
                               known_entries<T>(r.begin, stop, edges.keys, params.value.row_stride)};
      dots(params.grad_output + r.row * params.value_dim, values, Acc{1}, all_u + r.buffer);
    }
    for (int n = 0; n < count; ++n) {
      const GroupRow& r = group[n];
      if (r.degree == 0) continue;
      Acc *const scores = all_scores + r.buffer, *const weights = all_weights + r.buffer,
                 *const u = all_u + r.buffer;
      if (params.dropout.p > 0) {
        dropout_of_row(params.dropout, r.place.head_index, r.place.query, edges.col_indices + r.begin,
                       r.degree, factors);
        multiply_by(u, factors, r.degree);
      }
      // Normalised by the row's own sum, as in the forward pass: lse alone loses log(total) beside a huge
      // maximum.
      const Acc top = largest_of(scores, r.degree);
      const Acc total = exponentials(scores, top, r.degree, weights);
      const Acc ubar = dot(params.grad_output + r.row * params.value_dim,
                           params.output + r.row * params.value_dim, params.value_dim);
      const RowSoftmax<Acc> softmax{top, 1 / total, ubar, 0};
      params.softmax[r.row] = softmax;
      const V share = V::broadcast(softmax.share), mean = V::broadcast(ubar);
      Acc* const logit_grads = all_logit_grads + r.buffer;
      for_vectors<Acc>(r.degree, [&](int64_t e, int) EDGEWISE_INLINE_LAMBDA {
        const V weight = V::load(weights + e) * share;
        weight.store(weights + e);
        (weight * (V::load(u + e) - mean)).store(logit_grads + e);
      });
      credit_of_row(params.rule, softmax, {scores, weights, u, logit_grads}, r.degree,
                    params.credit ? params.credit + r.begin : nullptr);
    }
    for (int n = 0; n < count; ++n)
      weighted_sum<T>(all_logit_grads + group[n].buffer, keys_of(group[n], 0),  // read a moment ago
                      {params.grad_query + group[n].row * params.head_dim, static_cast<Acc>(params.scale)});
  });
}

// Entries per segment of a column: their rows of q and g, read by the dot products, are still in the L1 cache
// when they are summed.
template <typename T>
int64_t segment_length(int64_t row_width) {
  constexpr int64_t kBytes = 24 * 1024;
  const int64_t entries = kBytes / (row_width * static_cast<int64_t>(sizeof(T)) + 1) / 16 * 16;
  return entries < 16 ? 16 : entries > 256 ? 256 : entries;
}

template <typename T>
void backward_columns(const AttentionColumnsParams<T>& params, int64_t column_begin, int64_t column_end) {
  using Acc = Accumulator<T>;
  using V = Vec<Acc>;
  const CscView& edges = params.edges;
  const int64_t segment = segment_length<T>(params.head_dim + params.value_dim);
  const int64_t widest = params.head_dim > params.value_dim ? params.head_dim : params.value_dim;
  const Scratch<Acc> scratch(8, segment > widest ? segment : widest);
  Acc *const weights = scratch.buffer(0), *const logit_grads = scratch.buffer(1),
             *const tops = scratch.buffer(2), *const shares = scratch.buffer(3),
             *const ubars = scratch.buffer(4), *const factors = scratch.buffer(5),
             *const key_partial = scratch.buffer(6), *const value_partial = scratch.buffer(7);
  for_rows(edges.heads, edges.keys, column_begin, column_end, [&](int64_t column, const RowPlace& place) {
    const int64_t end = edges.column_offsets[column + 1], key_index = place.query;
    const T* key = params.key.head(place.batch, place.head) + key_index * params.key.row_stride;
    const T* value = params.value.head(place.batch, place.head) + key_index * params.value.row_stride;
    const RowSoftmax<Acc>* softmax = params.softmax + place.head_index * edges.queries;
    Gathered<T> queries{params.query.head(place.batch, place.head), params.query.row_stride, params.head_dim,
                        nullptr, 0};
    Gathered<T> grads{params.grad_output.head(place.batch, place.head), params.grad_output.row_stride,
                      params.value_dim, nullptr, 0};
    SumTarget<T> key_target{params.grad_key + column * params.head_dim, static_cast<Acc>(params.scale)};
    SumTarget<T> value_target{params.grad_value + column * params.value_dim};
    key_target.partial = key_partial;
    value_target.partial = value_partial;
    int64_t begin = edges.column_offsets[column];
    const int64_t stop = edges.column_offsets[column_end];
    do {  // once also for a column with no edge: its gradients are 0
      const int64_t count = end - begin < segment ? end - begin : segment;
      queries.indices = grads.indices = edges.row_indices + begin;
      queries.count = grads.count = count;
      queries.known = known_entries<T>(begin, stop, edges.queries, params.query.row_stride);
      grads.known = known_entries<T>(begin, stop, edges.queries, params.grad_output.row_stride);
      for (int64_t e = 0; e < count; ++e) {
        const RowSoftmax<Acc>& row = softmax[queries.indices[e]];
        tops[e] = row.top, shares[e] = row.share, ubars[e] = row.ubar;
      }
      // The same products in the same order as in the row pass: the same weights, bit for bit.
      dots(key, queries, static_cast<Acc>(params.scale), weights);
      dots(value, grads, Acc{1}, logit_grads);
      if (params.dropout.p > 0) {
        dropout_of_column(params.dropout, place.head_index, queries.indices, key_index, count, factors);
        multiply_by(logit_grads, factors, count);
      }
      for_vectors<Acc>(count, [&](int64_t e, int) EDGEWISE_INLINE_LAMBDA {
        const V weight = exp(V::load(weights + e) - V::load(tops + e)) * V::load(shares + e);
        weight.store(weights + e);
        (weight * (V::load(logit_grads + e) - V::load(ubars + e))).store(logit_grads + e);
      });
      if (params.dropout.p > 0) multiply_by(weights, factors, count);
      begin += count;
      key_target.last = value_target.last = begin == end;
      queries.known = grads.known = 0;  // read a moment ago
      weighted_sum<T>(logit_grads, queries, key_target);
      weighted_sum<T>(weights, grads, value_target);
      key_target.first = value_target.first = false;
    } while (begin < end);
  });
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
  return {forward<T>, backward_rows<T>, backward_columns<T>, probe_credit<T>};
}
template AttentionKernels<float> attention_kernels<float>();
template AttentionKernels<Bf16> attention_kernels<Bf16>();
#if defined(EDGEWISE_PORTABLE_LEVEL)
template AttentionKernels<double> attention_kernels<double>();
#endif

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
