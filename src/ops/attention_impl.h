// What every implementation of edge_attention takes and gives. ops/edge_attention.cpp checks, chooses one and
// wires autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/edge_credit.h>

#include "kernels/params.h"

namespace edgewise::ops {

struct AttentionInputs {
  at::Tensor query;  // [B, H, L, D]
  at::Tensor key;    // [B, H, S, D]
  at::Tensor value;  // [B, H, S, Dv]
  EdgeSet edges;
  double scale = 1;
  double dropout_p = 0;
  at::Tensor head_keys;  // [B*H] int64 on CPU: stream keys of the dropout; undefined when dropout_p = 0

  // fp64 for fp64, else fp32: the type of lse and of per-edge values.
  at::ScalarType accumulator() const { return query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }
};

struct AttentionForward {
  at::Tensor output;  // [B, H, L, Dv]
  at::Tensor lse;     // [B, H, L], -inf for a row with no edge
};

// Which per-edge gradient to compute beside dq, dk, dv.
struct CreditRequest {
  kernels::CreditRule rule = kernels::CreditRule::kNone;
  std::optional<EdgeSet> probes;
};

struct AttentionBackward {
  at::Tensor query, key, value;  // gradients
  at::Tensor credit;             // [E] by the rule; undefined for kNone
  at::Tensor probe_credit;       // [probes], effect of adding each; undefined without probes
};

AttentionForward kernel_forward(const AttentionInputs& in);
AttentionBackward kernel_backward(const AttentionInputs& in, const AttentionForward& forward,
                                  const at::Tensor& grad_output, const CreditRequest& credit);

// ---- products with sparse per-edge values G [E]: kernels on CPU, plain ATen elsewhere ----

// G dense: [B, H, S, W] -> [B, H, L, W].
at::Tensor multiply_rows(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense);
// G^T dense: [B, H, L, W] -> [B, H, S, W].
at::Tensor multiply_columns(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense);
// left_i . right_j per edge: [E].
at::Tensor edge_dot(const EdgeSet& edges, const at::Tensor& left, const at::Tensor& right);

}  // namespace edgewise::ops
