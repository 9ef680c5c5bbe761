// Parameter structs of the kernels: raw pointers with their shapes. B batch, H heads, L queries, S keys, D
// head dim, C clusters, E edges. A row is r = (b*H + h)*L + i.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace edgewise::kernels {

// A [B, H, N, width] tensor whose last dimension is contiguous.
template <typename T>
struct HeadView {
  const T* data = nullptr;
  int64_t batch_stride = 0;
  int64_t head_stride = 0;
  int64_t row_stride = 0;

  // Inlined always: kernels for several CPU levels include this file.
  [[gnu::always_inline]] const T* head(int64_t b, int64_t h) const {
    return data + b * batch_stride + h * head_stride;
  }
};

struct CsrView {
  int64_t heads = 0;                     // H
  int64_t queries = 0;                   // L
  int64_t keys = 0;                      // S
  const int64_t* row_offsets = nullptr;  // [B*H*L + 1]
  const int32_t* col_indices = nullptr;  // [E]
};

// Dropout on attention weights: the pair (row, column) is kept when its number is at least p * 2^32.
struct DropoutParams {
  double p = 0;
  const uint64_t* head_keys = nullptr;  // [B*H] stream keys
};

template <typename T>
struct AttentionForwardParams {
  CsrView edges;
  int64_t head_dim = 0;   // D
  int64_t value_dim = 0;  // Dv
  double scale = 1;
  DropoutParams dropout;
  HeadView<T> query;              // [B, H, L, D]
  HeadView<T> key;                // [B, H, S, D]
  HeadView<T> value;              // [B, H, S, Dv]
  T* output = nullptr;            // [B*H*L, Dv]
  Accumulator<T>* lse = nullptr;  // [B*H*L], log-sum-exp of the row's logits; -inf for an empty row
  // For the backward pass, one of both or none: s_ij, or exp(s_ij - c) with a c of the row's own, which is
  // all that gradients ask for unless a learner wants scores.
  Accumulator<T>* scores = nullptr;        // [E]
  Accumulator<T>* exponentials = nullptr;  // [E]
};

// How a row's attention gradient becomes credit for the learner; see edgewise/ops/edge_learner.h.
enum class CreditRule : int32_t { kNone, kLogit, kPaper, kLeaveOneOut };
constexpr bool needs_scores(CreditRule rule) {
  return rule == CreditRule::kPaper || rule == CreditRule::kLeaveOneOut;
}

// Row pass of the backward. The columns' side follows by ScatterSumParams from the two numbers an edge that
// it leaves behind: dk_j = scale sum_i logit_grads_ij q_i and dv_j = sum_i weights_ij dL/do_i.
template <typename T>
struct AttentionBackwardParams {
  CsrView edges;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  double scale = 1;
  DropoutParams dropout;
  HeadView<T> query, key, value;
  const T* grad_output = nullptr;  // [B*H*L, Dv]
  const T* output = nullptr;       // [B*H*L, Dv]
  // As the forward pass left them. Exponentials will do where the rule asks for no scores (needs_scores);
  // with neither of them scores are formed anew.
  const Accumulator<T>* scores = nullptr;        // [E]
  const Accumulator<T>* exponentials = nullptr;  // [E]
  T* grad_query = nullptr;                       // [B*H*L, D]
  Accumulator<T>* weights = nullptr;             // [E] a_ij after dropout; may be one of the two above
  Accumulator<T>* logit_grads = nullptr;         // [E] dL/ds_ij
  CreditRule rule = CreditRule::kNone;
  Accumulator<T>* credit = nullptr;  // [E] dL/d(edge present); untouched when rule is kNone
};

// What adding each absent edge would do: credit = sigmoid(s - lse) (u - ubar).
template <typename T>
struct ProbeCreditParams {
  CsrView probes;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  double scale = 1;
  HeadView<T> query, key, value;
  const T* grad_output = nullptr;       // [B*H*L, Dv]
  const T* output = nullptr;            // [B*H*L, Dv]
  const Accumulator<T>* lse = nullptr;  // [B*H*L]
  Accumulator<T>* credit = nullptr;     // [number of probes]
};

// out_r = sum over the edges e of row r of factor * coefficients[e] * dense[head of r][indices[e]].
template <typename T>
struct GatherSumParams {
  int64_t heads = 0;
  int64_t rows_per_head = 0;  // L
  int64_t dense_rows = 0;     // S: rows of `dense` per head
  int64_t width = 0;
  double factor = 1;
  const int64_t* offsets = nullptr;              // [B*H*rows_per_head + 1]
  const int32_t* indices = nullptr;              // [E] row of `dense` within the head
  const Accumulator<T>* coefficients = nullptr;  // [E]
  HeadView<T> dense;                             // [B, H, S, width]
  T* out = nullptr;                              // [B*H*rows_per_head, width]
};

// out_c = sum over the edges e of column c = (b*H + h)*S + j of factor * coefficients[e] * dense[row of e],
// from the edges in row order: no transposed list is needed. A kernel call takes a range of columns.
template <typename T>
struct ScatterSumParams {
  CsrView edges;  // columns sorted within each row
  int64_t width = 0;
  double factor = 1;
  const Accumulator<T>* coefficients = nullptr;  // [E]
  HeadView<T> dense;                             // [B, H, L, width]
  T* out = nullptr;                              // [B*H*S, width]
};

// Per-edge dot products left_i . right_j.
template <typename T>
struct EdgeDotParams {
  CsrView edges;
  int64_t width = 0;
  HeadView<T> left;               // [B, H, L, width]
  HeadView<T> right;              // [B, H, S, width]
  Accumulator<T>* out = nullptr;  // [E]
};

}  // namespace edgewise::kernels
