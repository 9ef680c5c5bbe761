// Parameters of attention with additive scores and of sparse products, for kernels on CPUs and GPUs. B batch,
// H heads, L queries, S keys, Dv value dim, E edges; a row is r = (b*H + h)*L + i.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/params.h"

namespace edgewise::kernels {

// A [B, H, N, width] tensor whose last dimension is contiguous.
template <typename T>
struct HeadRows {
  T* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;

  EDGEWISE_BOTH T* at(int64_t b, int64_t h, int64_t row) const {
    return data + b * batch_stride + h * head_stride + row * row_stride;
  }
};

// The edges of B*H heads from `rows` to `columns` nodes; or of B, which the heads of an item share.
struct HeadLists {
  int64_t batch = 0, heads = 0, rows = 0, columns = 0;
  bool shared = false;
  const int64_t* offsets = nullptr;  // [B*H*rows + 1], or [B*rows + 1]
  const int32_t* indices = nullptr;  // [E]

  // Of the list of a node.
  EDGEWISE_BOTH int64_t list(int64_t b, int64_t h, int64_t node) const {
    return (shared ? b : b * heads + h) * rows + node;
  }
  EDGEWISE_BOTH int64_t row(int64_t b, int64_t h, int64_t node) const {
    return (b * heads + h) * rows + node;
  }
};

// What forward and backward passes have in common.
template <typename T>
struct AdditiveCall {
  HeadLists edges;  // by queries, or in the pass over columns by keys
  int64_t value_dim = 0;
  T slope = 0;
  DropoutParams dropout;           // of the pair (query, key)
  const T* query_score = nullptr;  // [B*H*L]
  const T* key_score = nullptr;    // [B*H*S]
  HeadRows<const T> value;         // [B, H, S, Dv]
};

template <typename T>
struct AdditiveForwardParams : AdditiveCall<T> {
  HeadRows<T> output;  // [B, H, L, Dv]
  T* lse = nullptr;    // [B*H*L], -inf for an empty row
};

// Rows: ubar = grad . output, the gradient of the queries' scores, and a number per edge by the rule.
template <typename T>
struct AdditiveRowsParams : AdditiveCall<T> {
  HeadRows<const T> output, grad_output;
  const T* lse = nullptr;
  T* ubar = nullptr;              // [B*H*L]
  T* query_score_grad = nullptr;  // [B*H*L]
  CreditRule rule = CreditRule::kNone;
  T* credit = nullptr;  // [E]; lists are then every head's own
};

// Columns: the gradients of the keys' scores and of the values. `edges` are by keys.
template <typename T>
struct AdditiveColumnsParams : AdditiveCall<T> {
  HeadRows<const T> grad_output;
  const T* lse = nullptr;
  const T* ubar = nullptr;
  T* key_score_grad = nullptr;  // [B*H*S]
  HeadRows<T> value_grad;       // [B, H, S, Dv]
};

// What adding each absent edge would do: credit = sigmoid(s - lse) (u - ubar). `edges` are the probes.
template <typename T>
struct AdditiveProbesParams : AdditiveCall<T> {
  HeadRows<const T> grad_output;
  const T* lse = nullptr;
  const T* ubar = nullptr;
  T* credit = nullptr;  // [probes]
};

// out[b, h, i] = sum over the entries e of list i of dropout(weights[e]) dense[b, h, index of e].
template <typename T>
struct SparseProductParams {
  HeadLists entries;
  int64_t width = 0;
  const T* weights = nullptr;  // [E]
  DropoutParams dropout;       // of the pair (node, index); of (index, node) where `turned`
  bool turned = false;         // the lists are those of the transpose
  HeadRows<const T> dense;     // [B, H, columns, width]
  HeadRows<T> out;             // [B, H, rows, width]
};

}  // namespace edgewise::kernels
