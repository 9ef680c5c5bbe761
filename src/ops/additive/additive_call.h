// Calls of additive_edge_attention and sparse_product as kernels see them.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

#include <optional>
#include <string>

#include "kernels/params.h"

namespace edgewise::ops {

struct AdditiveInputs {
  at::Tensor query_score;  // [B, H, L] contiguous
  at::Tensor key_score;    // [B, H, S] contiguous
  at::Tensor value;        // [B, H, S, Dv] with contiguous rows
  EdgeSet edges;           // [B, H or 1, L, S]
  double slope = 0.2;
  double dropout_p = 0;
  at::Tensor head_keys = {};  // [B*H] int64 on the CPU: stream keys of the dropout
  kernels::CreditRule rule = kernels::CreditRule::kNone;
  std::optional<EdgeSet> probes = {};

  EdgeShape shape() const { return {value.size(0), value.size(1), query_score.size(2), value.size(2)}; }
  bool shared() const { return edges.shape().heads != value.size(1); }  // one list for all heads of an item
};
struct AdditiveForward {
  at::Tensor output;  // [B, H, L, Dv], in memory [B, L, H, Dv]: joining the heads costs nothing
  at::Tensor lse;     // [B, H, L]
};
struct AdditiveBackward {
  at::Tensor query_score, key_score, value;  // gradients
  at::Tensor credit, probe_credit;           // [E] and [probes]; undefined without a rule
};

AdditiveForward cpu_additive_forward(const AdditiveInputs& in);
AdditiveBackward cpu_additive_backward(const AdditiveInputs& in, const AdditiveForward& forward,
                                       const at::Tensor& grad_output);
// Why the kernels of a GPU do not run a call; empty when they do.
std::string cuda_additive_refusal(at::Device device, at::ScalarType dtype, int64_t width,
                                  kernels::CreditRule rule);
AdditiveForward cuda_additive_forward(const AdditiveInputs& in);
AdditiveBackward cuda_additive_backward(const AdditiveInputs& in, const AdditiveForward& forward,
                                        const at::Tensor& grad_output);

struct SparseInputs {
  EdgeSet entries;     // [1, 1, N, F]
  at::Tensor weights;  // [Z]
  at::Tensor dense;    // [1, H, F, D] with contiguous rows
  double dropout_p = 0;
  at::Tensor head_keys = {};  // [H]
  bool turned = false;        // entries are those of the transpose
};
at::Tensor cpu_sparse_product(const SparseInputs& in);  // [1, H, N, D], in memory [1, N, H, D]
at::Tensor cuda_sparse_product(const SparseInputs& in);

namespace reference {
AdditiveForward additive_forward(const AdditiveInputs& in);
AdditiveBackward additive_backward(const AdditiveInputs& in, const AdditiveForward& forward,
                                   const at::Tensor& grad_output);
at::Tensor sparse_product(const SparseInputs& in);
}  // namespace reference

}  // namespace edgewise::ops
