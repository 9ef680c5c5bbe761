// Attention with additive scores, s_ij = LeakyReLU(query_score_i + key_score_j), and sums over lists with
// given weights. Compiled once per CPU level (simd.h).
//
// A score is two numbers and a comparison, so that the passes form it anew instead of keeping it: nothing of
// the size of the edges is written. Every output row has one owner: no atomics, and the result does not
// depend on the number of threads.
#include "kernels/cpu/additive/additive_kernels.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/attention/dropout_level.h"
#include "kernels/cpu/attention/gathered_rows.h"
#include "kernels/cpu/attention/level_rows.h"
#include "kernels/cpu/attention/row_weights.h"

namespace edgewise::kernels::cpu::EDGEWISE_LEVEL {
namespace {

// One node in one head, with its list.
struct Visit {
  int64_t b, h, node, row;
  int64_t begin, degree;
  const int32_t* indices;
};

// body(visit) for the nodes begin .. end, each in all heads.
template <typename Body>
EDGEWISE_INLINE void for_visits(const HeadLists& lists, int64_t begin, int64_t end, const Body& body) {
  for (int64_t place = begin; place < end; ++place) {
    Visit visit;
    visit.b = place / lists.rows, visit.node = place % lists.rows;
    for (visit.h = 0; visit.h < lists.heads; ++visit.h) {
      const int64_t list = lists.list(visit.b, visit.h, visit.node);
      visit.row = lists.row(visit.b, visit.h, visit.node);
      visit.begin = lists.offsets[list];
      visit.degree = lists.offsets[list + 1] - visit.begin;
      visit.indices = lists.indices + visit.begin;
      body(visit);
    }
  }
}

inline int64_t longest_list(const HeadLists& lists, int64_t begin, int64_t end) {
  int64_t result = 0;
  for_visits(lists, begin, end, [&](const Visit& visit) EDGEWISE_INLINE_LAMBDA {
    result = visit.degree > result ? visit.degree : result;
  });
  return result;
}

// The rows of a head that a list names.
template <typename T>
EDGEWISE_INLINE Gathered<T> gathered(const HeadRows<const T>& rows, const Visit& visit, int64_t width) {
  return {rows.at(visit.b, visit.h, 0), rows.row_stride, width, visit.indices, visit.degree};
}

// LeakyReLU(own + other[index]) of a list.
template <typename T>
EDGEWISE_INLINE void scores_of(const Visit& visit, T own, const T* other, T slope, T* scores) {
  for (int64_t e = 0; e < visit.degree; ++e) {
    const T sum = own + other[visit.indices[e]];
    scores[e] = sum > 0 ? sum : slope * sum;
  }
}

// exp in place.
template <typename T>
EDGEWISE_INLINE void exponentials_of(T* values, int64_t count) {
  using V = Vec<T>;
  for (int64_t e = 0; e < count; e += V::kWidth) exp(V::load(values + e)).store(values + e);
}

template <typename T>
EDGEWISE_INLINE T dot_of(const T* a, const T* b, int64_t width) {
  T sum = 0;
  for (int64_t d = 0; d < width; ++d) sum += a[d] * b[d];
  return sum;
}

template <typename T>
void forward(const AdditiveForwardParams<T>& p, int64_t begin, int64_t end) {
  const Scratch<T> scratch(2, longest_list(p.edges, begin, end));
  T *const weights = scratch.buffer(0), *const factors = scratch.buffer(1);
  for_visits(p.edges, begin, end, [&](const Visit& visit) EDGEWISE_INLINE_LAMBDA {
    T* const out = p.output.at(visit.b, visit.h, visit.node);
    if (visit.degree == 0) {
      for (int64_t d = 0; d < p.value_dim; ++d) out[d] = 0;
      p.lse[visit.row] = -std::numeric_limits<T>::infinity();
      return;
    }
    const T* const keys = p.key_score + (visit.row - visit.node) / p.edges.rows * p.edges.columns;
    scores_of(visit, p.query_score[visit.row], keys, p.slope, weights);
    const T top = largest_of(weights, visit.degree),
            total = exponentials(weights, visit.degree, top, weights);
    if (p.dropout.head_keys) {
      dropout_of_row(p.dropout, visit.b * p.edges.heads + visit.h, visit.node, visit.indices, visit.degree,
                     factors);
      for (int64_t e = 0; e < visit.degree; ++e) weights[e] *= factors[e];
    }
    weighted_sum<T>(weights, gathered(p.value, visit, p.value_dim), {out, 1 / total});
    p.lse[visit.row] = top + std::log(total);
  });
}

// a / (1 - a) (u - ubar) of a row. Of its largest edge, where 1 - a may be nothing but rounding, a (u - mean
// of u over the others), formed directly.
template <typename T>
void leave_one_out(const T* scores, const T* weights, const T* u, T ubar, int64_t count, T* credit) {
  int64_t top = 0;
  for (int64_t e = 1; e < count; ++e)
    if (scores[e] > scores[top]) top = e;
  T next = -std::numeric_limits<T>::infinity();
  for (int64_t e = 0; e < count; ++e)
    if (e != top && scores[e] > next) next = scores[e];
  T total = 0, sum = 0;
  for (int64_t e = 0; e < count; ++e) {
    if (e == top) continue;
    const T share = std::exp(scores[e] - next);
    total += share, sum += share * u[e];
    credit[e] = weights[e] / (1 - weights[e]) * (u[e] - ubar);
  }
  credit[top] = count > 1 ? weights[top] * (u[top] - sum / total) : u[top];
}

template <typename T>
void backward_rows(const AdditiveRowsParams<T>& p, int64_t begin, int64_t end) {
  const Scratch<T> scratch(4, longest_list(p.edges, begin, end));
  T *const scores = scratch.buffer(0), *const weights = scratch.buffer(1), *const u = scratch.buffer(2),
           *const factors = scratch.buffer(3);
  for_visits(p.edges, begin, end, [&](const Visit& visit) EDGEWISE_INLINE_LAMBDA {
    const T* const grad = p.grad_output.at(visit.b, visit.h, visit.node);
    const T ubar = dot_of(grad, p.output.at(visit.b, visit.h, visit.node), p.value_dim);
    p.ubar[visit.row] = ubar;
    p.query_score_grad[visit.row] = 0;
    if (visit.degree == 0) return;
    const T own = p.query_score[visit.row], lse = p.lse[visit.row];
    const T* const keys = p.key_score + (visit.row - visit.node) / p.edges.rows * p.edges.columns;
    scores_of(visit, own, keys, p.slope, scores);
    for (int64_t e = 0; e < visit.degree; ++e) weights[e] = scores[e] - lse;
    exponentials_of(weights, visit.degree);
    dots(grad, gathered(p.value, visit, p.value_dim), T{1}, u);
    if (p.dropout.head_keys) {
      dropout_of_row(p.dropout, visit.b * p.edges.heads + visit.h, visit.node, visit.indices, visit.degree,
                     factors);
      for (int64_t e = 0; e < visit.degree; ++e) u[e] *= factors[e];
    }
    T sum = 0;
    for (int64_t e = 0; e < visit.degree; ++e) {
      const T number = weights[e] * (u[e] - ubar);
      sum += own + keys[visit.indices[e]] > 0 ? number : p.slope * number;
    }
    p.query_score_grad[visit.row] = sum;
    if (p.rule == CreditRule::kNone) return;
    T* const credit = p.credit + visit.begin;
    if (p.rule == CreditRule::kLeaveOneOut)
      return leave_one_out(scores, weights, u, ubar, visit.degree, credit);
    for (int64_t e = 0; e < visit.degree; ++e)
      credit[e] = weights[e] * (u[e] - ubar) * (p.rule == CreditRule::kPaper ? scores[e] : T{1});
  });
}

template <typename T>
void backward_columns(const AdditiveColumnsParams<T>& p, int64_t begin, int64_t end) {
  const Scratch<T> scratch(3, longest_list(p.edges, begin, end));
  T *const weights = scratch.buffer(0), *const u = scratch.buffer(1), *const factors = scratch.buffer(2);
  for_visits(p.edges, begin, end, [&](const Visit& visit) EDGEWISE_INLINE_LAMBDA {
    const int64_t first = (visit.row - visit.node) / p.edges.rows * p.edges.columns;  // row of query 0
    const T *const queries = p.query_score + first, *const lse = p.lse + first, *const ubar = p.ubar + first;
    const T own = p.key_score[visit.row];
    const Gathered<T> grads = gathered(p.grad_output, visit, p.value_dim);
    scores_of(visit, own, queries, p.slope, weights);
    for (int64_t e = 0; e < visit.degree; ++e) weights[e] -= lse[visit.indices[e]];
    exponentials_of(weights, visit.degree);
    dots(p.value.at(visit.b, visit.h, visit.node), grads, T{1}, u);
    if (p.dropout.head_keys) {
      dropout_factors(
          p.dropout, visit.b * p.edges.heads + visit.h,
          [&](int64_t e) EDGEWISE_INLINE_LAMBDA { return visit.indices[e]; },
          [&](int64_t) EDGEWISE_INLINE_LAMBDA { return visit.node; }, visit.degree, factors);
    } else {
      for (int64_t e = 0; e < visit.degree; ++e) factors[e] = 1;
    }
    T sum = 0;
    for (int64_t e = 0; e < visit.degree; ++e) {
      const int32_t i = visit.indices[e];
      const T number = weights[e] * (u[e] * factors[e] - ubar[i]);
      sum += own + queries[i] > 0 ? number : p.slope * number;
      weights[e] *= factors[e];
    }
    p.key_score_grad[visit.row] = sum;
    weighted_sum<T>(weights, grads, {p.value_grad.at(visit.b, visit.h, visit.node)});
  });
}

template <typename T>
void probe_credit(const AdditiveProbesParams<T>& p, int64_t begin, int64_t end) {
  const Scratch<T> scratch(2, longest_list(p.edges, begin, end));
  T *const scores = scratch.buffer(0), *const u = scratch.buffer(1);
  for_visits(p.edges, begin, end, [&](const Visit& visit) EDGEWISE_INLINE_LAMBDA {
    const T* const keys = p.key_score + (visit.row - visit.node) / p.edges.rows * p.edges.columns;
    scores_of(visit, p.query_score[visit.row], keys, p.slope, scores);
    dots(p.grad_output.at(visit.b, visit.h, visit.node), gathered(p.value, visit, p.value_dim), T{1}, u);
    for (int64_t e = 0; e < visit.degree; ++e)  // of a row without edges lse is -inf, and the share 1
      p.credit[visit.begin + e] = (u[e] - p.ubar[visit.row]) / (1 + std::exp(p.lse[visit.row] - scores[e]));
  });
}

template <typename T>
void sparse_product(const SparseProductParams<T>& p, int64_t begin, int64_t end) {
  const Scratch<T> scratch(1, longest_list(p.entries, begin, end));
  T* const factors = scratch.buffer(0);
  for_visits(p.entries, begin, end, [&](const Visit& visit) EDGEWISE_INLINE_LAMBDA {
    const T* weights = p.weights + visit.begin;
    if (p.dropout.head_keys) {
      const auto node = [&](int64_t) EDGEWISE_INLINE_LAMBDA { return static_cast<int32_t>(visit.node); };
      const auto index = [&](int64_t e) EDGEWISE_INLINE_LAMBDA { return visit.indices[e]; };
      const int64_t head = visit.b * p.entries.heads + visit.h;
      if (p.turned)
        dropout_factors(p.dropout, head, index, node, visit.degree, factors);
      else
        dropout_factors(p.dropout, head, node, index, visit.degree, factors);
      for (int64_t e = 0; e < visit.degree; ++e) factors[e] *= weights[e];
      weights = factors;
    }
    weighted_sum<T>(weights, gathered(p.dense, visit, p.width), {p.out.at(visit.b, visit.h, visit.node)});
  });
}

}  // namespace

template <typename T>
AdditiveKernels<T> additive_kernels() {
  return {forward<T>, backward_rows<T>, backward_columns<T>, probe_credit<T>, sparse_product<T>};
}
template AdditiveKernels<float> additive_kernels<float>();
#if defined(EDGEWISE_PORTABLE_LEVEL)
template AdditiveKernels<double> additive_kernels<double>();
#endif

}  // namespace edgewise::kernels::cpu::EDGEWISE_LEVEL
