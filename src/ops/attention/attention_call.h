// A call of edge_attention as kernels see it: the call in numbers, by which they refuse or take it, its
// tensors, and what they give back.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/edge_learner.h>
#include <edgewise/ops/float32_matmul.h>
#include <edgewise/ops/functional.h>

#include <memory>
#include <string>

#include "kernels/params.h"

namespace edgewise::ops {

struct AttentionKernel;

// What the backward pass of a call is to give a learner.
struct LearnerCall {
  kernels::CreditRule rule = kernels::CreditRule::kNone;  // kNone: there is none
  int64_t clusters = 0;    // of memberships, whose gradients a kernel may form itself; 0 = numbers are wanted
  double probe_share = 0;  // of the absent pairs, in the mean over the items
  bool has_probes = false;
  bool probes_in_units = false;  // squares, with flags of where they are (graph/edge_windows.h)
  bool has_fixed = false;
  bool has_discarded = false;
  bool poisson_slope = false;

  bool exists() const { return rule != kernels::CreditRule::kNone; }
};

kernels::CreditRule kernel_rule(CreditRule rule);

// A call in numbers: all by which a kernel may refuse it. It needs neither tensors nor the device it is
// about.
struct AttentionCall {
  at::DeviceType device = at::kCPU;
  // On a GPU: why none of our kernels runs on this one, or in this build; empty when they do.
  std::string no_kernels = {};
  int64_t device_bytes = 0;  // memory of a GPU
  EdgeShape shape;
  at::ScalarType dtype = at::kFloat;
  int64_t head_dim = 0, value_dim = 0;
  bool is_listed = false;                  // the edges are CSR already
  std::optional<int64_t> edge_count = {};  // if the host knows
  double dropout_p = 0;
  bool gradients_follow = false;                // a backward pass may follow
  Float32Matmul matmul = Float32Matmul::kIeee;  // of float32 on CUDA
  LearnerCall learns;
  functional::Backend backend = functional::Backend::kAuto;

  // Whether the edges are lists, of at most this part of all pairs.
  bool lists_rarer_than(double density) const {
    return is_listed && edge_count &&
           static_cast<double>(*edge_count) < density * static_cast<double>(shape.pairs());
  }
};

struct AttentionInputs : AttentionCall {
  at::Tensor query;  // [B, H, L, D]
  at::Tensor key;    // [B, H, S, D]
  at::Tensor value;  // [B, H, S, Dv]
  EdgeSet edges;
  double scale = 1;
  // [B*H] int64 on CPU (on the device, where a pass is recorded): stream keys of the dropout; undefined when
  // dropout_p = 0.
  at::Tensor head_keys;
  std::optional<EdgeLearner> learner = {};  // its tensors detached

  // fp64 for fp64, else fp32: the type of lse and of per-edge values.
  at::ScalarType accumulator() const { return dtype == at::kDouble ? at::kDouble : at::kFloat; }
};

// What a kernel keeps of its forward pass for its own backward pass: a struct of its own that derives from
// this.
struct KernelState {
  virtual ~KernelState() = default;
};

struct AttentionForward {
  at::Tensor output;  // [B, H, L, Dv]
  at::Tensor lse;     // [B, H, L], -inf for a row with no edge
  // The kernel that computed it, whose backward pass it gets; null when output and lse come from outside.
  const AttentionKernel* kernel = nullptr;
  std::shared_ptr<KernelState> state = nullptr;  // perhaps null: a backward pass can do without
};

struct AttentionBackward {
  at::Tensor query, key, value;  // gradients
  at::Tensor credit;             // [E] by the learner's rule
  at::Tensor probe_credit;       // [probes], effect of adding each; undefined without probes
  // Gradients, from kernels that form them of a learner with memberships; then no numbers are given.
  at::Tensor query_membership, key_side;
  bool has_discarded = false;  // they hold what the learner's discarded edges send
};

// `scale` defaults to 1 / sqrt(D). The learner's tensors lose their graph.
AttentionInputs attention_inputs(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                 const EdgeSet& edges, std::optional<double> scale,
                                 const EdgeLearner* learner = nullptr);

// By the first kernel that takes the call (kernel_table.h); backward by the one that ran forward.
AttentionForward run_forward(const AttentionInputs& in);
// density_grad: [H], the gradient of the sampled density, or undefined.
AttentionBackward run_backward(const AttentionInputs& in, const AttentionForward& forward,
                               const at::Tensor& grad_output, const at::Tensor& density_grad = {});

// ---- products with sparse per-edge values G [E]: kernels on CPU, plain ATen elsewhere ----

// G dense: [B, H, S, W] -> [B, H, L, W].
at::Tensor multiply_rows(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense);
// G^T dense: [B, H, L, W] -> [B, H, S, W].
at::Tensor multiply_columns(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense);
// left_i . right_j per edge: [E].
at::Tensor edge_dot(const EdgeSet& edges, const at::Tensor& left, const at::Tensor& right);

}  // namespace edgewise::ops
