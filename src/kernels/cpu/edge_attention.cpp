// Row i attends over its edges N_i:  s_ij = scale q_i . k_j,  a = softmax over N_i,  o_i = sum_j a_ij v_j.
//
// Backward, with g = dL/do_i, u_ij = g . v_j (times the dropout factor) and ubar = g . o_i:
//   dL/ds_ij = a_ij (u_ij - ubar).
// The sums dq, dk, dv follow from weights and logit gradients by gather_sum (sparse_product.h).
#include "kernels/cpu/edge_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/dot.h"
#include "kernels/philox.h"

namespace edgewise::kernels::cpu {
namespace {

// Dropout factors of one row: 0 or 1 / (1 - p), from the number of each (row, column) pair.
class RowDropout {
 public:
  RowDropout(const DropoutParams& params, int64_t head, int64_t row)
      : active_(params.p > 0),
        row_(row),
        key_(active_ ? params.head_keys[head] : 0),
        threshold_(params.p * 4294967296.0),
        kept_(params.p < 1 ? 1 / (1 - params.p) : 0) {}

  double factor(int32_t column) {
    if (!active_) return 1;
    if (column / 4 != block_) {
      block_ = column / 4;
      words_ = block_words(key_, row_, block_);
    }
    return words_[column % 4] >= threshold_ ? kept_ : 0;
  }

 private:
  bool active_;
  int64_t row_;
  uint64_t key_;
  double threshold_, kept_;
  int64_t block_ = -1;
  Words words_{};
};

// Where a global row lies.
struct RowPlace {
  int64_t batch, head, query, head_index;
  RowPlace(const CsrView& edges, int64_t row)
      : batch(row / edges.queries / edges.heads),
        head(row / edges.queries % edges.heads),
        query(row % edges.queries),
        head_index(row / edges.queries) {}
};

// Exact effect of removing each edge, a / (1 - a) (u - ubar), without cancellation: the mean of u over the
// *other* edges is formed directly, also when one edge holds nearly all the weight. An only edge leaves
// output 0: credit u.
template <typename Acc>
void leave_one_out(const Acc* scores, const Acc* weights, const Acc* u, Acc ubar, int64_t degree,
                   Acc* credit) {
  if (degree == 1) {
    credit[0] = u[0];
    return;
  }
  const int64_t top = std::max_element(scores, scores + degree) - scores;
  Acc runner_up = -std::numeric_limits<Acc>::infinity();
  for (int64_t e = 0; e < degree; ++e)
    if (e != top) runner_up = std::max(runner_up, scores[e]);
  Acc others = 0, others_u = 0;
  for (int64_t e = 0; e < degree; ++e) {
    if (e == top) continue;
    const Acc weight = std::exp(scores[e] - runner_up);
    others += weight;
    others_u += weight * u[e];
    credit[e] = weights[e] / (1 - weights[e]) * (u[e] - ubar);
  }
  credit[top] = weights[top] * (u[top] - others_u / others);
}

}  // namespace

template <typename T>
void edge_attention_forward(const AttentionForwardParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  std::vector<Acc> scores, sum(static_cast<size_t>(params.value_dim));
  for (int64_t row = row_begin; row < row_end; ++row) {
    const RowPlace place(params.edges, row);
    const int64_t begin = params.edges.row_offsets[row], end = params.edges.row_offsets[row + 1];
    T* output = params.output + row * params.value_dim;
    if (begin == end) {
      std::fill(output, output + params.value_dim, from_accumulator<T>(0));
      params.lse[row] = -std::numeric_limits<Acc>::infinity();
      continue;
    }
    const T* query = params.query.head(place.batch, place.head) + place.query * params.query.row_stride;
    const T* key = params.key.head(place.batch, place.head);
    const T* value = params.value.head(place.batch, place.head);

    scores.resize(static_cast<size_t>(end - begin));
    Acc top = -std::numeric_limits<Acc>::infinity();
    for (int64_t e = begin; e < end; ++e) {
      const T* key_row = key + params.edges.col_indices[e] * params.key.row_stride;
      const Acc score = static_cast<Acc>(params.scale) * dot(query, key_row, params.head_dim);
      scores[static_cast<size_t>(e - begin)] = score;
      top = std::max(top, score);
    }
    RowDropout dropout(params.dropout, place.head_index, place.query);
    std::fill(sum.begin(), sum.end(), Acc{0});
    Acc total = 0;
    for (int64_t e = begin; e < end; ++e) {
      const int32_t column = params.edges.col_indices[e];
      const Acc weight = std::exp(scores[static_cast<size_t>(e - begin)] - top);
      total += weight;
      const Acc kept = weight * static_cast<Acc>(dropout.factor(column));
      add_scaled(sum.data(), kept, value + column * params.value.row_stride, params.value_dim);
    }
    for (int64_t d = 0; d < params.value_dim; ++d)
      output[d] = from_accumulator<T>(sum[static_cast<size_t>(d)] / total);
    params.lse[row] = top + std::log(total);
  }
}

template <typename T>
void edge_attention_backward(const AttentionBackwardParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  std::vector<Acc> scores, weights, u;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const RowPlace place(params.edges, row);
    const int64_t begin = params.edges.row_offsets[row], degree = params.edges.row_offsets[row + 1] - begin;
    if (degree == 0) continue;
    const T* query = params.query.head(place.batch, place.head) + place.query * params.query.row_stride;
    const T* key = params.key.head(place.batch, place.head);
    const T* value = params.value.head(place.batch, place.head);
    const T* grad = params.grad_output + row * params.value_dim;
    const Acc ubar = dot(grad, params.output + row * params.value_dim, params.value_dim);
    RowDropout dropout(params.dropout, place.head_index, place.query);

    scores.resize(static_cast<size_t>(degree));
    weights.resize(static_cast<size_t>(degree));
    u.resize(static_cast<size_t>(degree));
    // Normalised by the row's own sum, as in the forward pass: lse alone loses log(total) beside a huge
    // maximum.
    Acc top = -std::numeric_limits<Acc>::infinity(), total = 0;
    for (int64_t n = 0; n < degree; ++n) {
      const T* key_row = key + params.edges.col_indices[begin + n] * params.key.row_stride;
      const Acc score = static_cast<Acc>(params.scale) * dot(query, key_row, params.head_dim);
      scores[static_cast<size_t>(n)] = score;
      top = std::max(top, score);
    }
    for (int64_t n = 0; n < degree; ++n) {
      weights[static_cast<size_t>(n)] = std::exp(scores[static_cast<size_t>(n)] - top);
      total += weights[static_cast<size_t>(n)];
    }
    for (int64_t n = 0; n < degree; ++n) {
      const int64_t e = begin + n;
      const int32_t column = params.edges.col_indices[e];
      const size_t slot = static_cast<size_t>(n);
      weights[slot] /= total;
      const Acc factor = static_cast<Acc>(dropout.factor(column));
      u[slot] = factor * dot(grad, value + column * params.value.row_stride, params.value_dim);
      params.weights[e] = weights[slot] * factor;
      params.logit_grads[e] = weights[slot] * (u[slot] - ubar);
    }
    switch (params.rule) {
      case CreditRule::kNone:
        break;
      case CreditRule::kLogit:
        std::copy_n(params.logit_grads + begin, degree, params.credit + begin);
        break;
      case CreditRule::kPaper:
        for (int64_t n = 0; n < degree; ++n)
          params.credit[begin + n] = params.logit_grads[begin + n] * scores[static_cast<size_t>(n)];
        break;
      case CreditRule::kLeaveOneOut:
        leave_one_out(scores.data(), weights.data(), u.data(), ubar, degree, params.credit + begin);
        break;
    }
  }
}

template <typename T>
void probe_credit(const ProbeCreditParams<T>& params, int64_t row_begin, int64_t row_end) {
  using Acc = Accumulator<T>;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int64_t begin = params.probes.row_offsets[row], end = params.probes.row_offsets[row + 1];
    if (begin == end) continue;
    const RowPlace place(params.probes, row);
    const T* query = params.query.head(place.batch, place.head) + place.query * params.query.row_stride;
    const T* key = params.key.head(place.batch, place.head);
    const T* value = params.value.head(place.batch, place.head);
    const T* grad = params.grad_output + row * params.value_dim;
    const Acc ubar = dot(grad, params.output + row * params.value_dim, params.value_dim);
    for (int64_t e = begin; e < end; ++e) {
      const int32_t column = params.probes.col_indices[e];
      const Acc score =
          static_cast<Acc>(params.scale) * dot(query, key + column * params.key.row_stride, params.head_dim);
      const Acc u = dot(grad, value + column * params.value.row_stride, params.value_dim);
      // b / (1 + b) with b = exp(s - lse); 1 when the row is empty (lse = -inf).
      const Acc share = 1 / (1 + std::exp(params.lse[row] - score));
      params.credit[e] = share * (u - ubar);
    }
  }
}

#define EDGEWISE_INSTANTIATE(T)                                                                  \
  template void edge_attention_forward<T>(const AttentionForwardParams<T>&, int64_t, int64_t);   \
  template void edge_attention_backward<T>(const AttentionBackwardParams<T>&, int64_t, int64_t); \
  template void probe_credit<T>(const ProbeCreditParams<T>&, int64_t, int64_t);
EDGEWISE_INSTANTIATE(float)
EDGEWISE_INSTANTIATE(double)
EDGEWISE_INSTANTIATE(Bf16)
#undef EDGEWISE_INSTANTIATE

}  // namespace edgewise::kernels::cpu
