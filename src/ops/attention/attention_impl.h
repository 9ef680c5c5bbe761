// What every implementation of edge_attention takes and gives. ops/attention/edge_attention.cpp checks,
// chooses one and wires autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/edge_credit.h>
#include <edgewise/ops/float32_matmul.h>
#include <edgewise/ops/functional.h>

#include <memory>

#include "kernels/params.h"

namespace edgewise::graph {
struct EdgeWindows;
}

namespace edgewise::ops {

struct AttentionInputs {
  at::Tensor query;  // [B, H, L, D]
  at::Tensor key;    // [B, H, S, D]
  at::Tensor value;  // [B, H, S, Dv]
  EdgeSet edges;
  double scale = 1;
  double dropout_p = 0;
  // [B*H] int64 on CPU (on the device, where a pass is recorded): stream keys of the dropout; undefined when
  // dropout_p = 0.
  at::Tensor head_keys;
  bool gradients_follow = false;  // a backward pass may follow
  int64_t learner_clusters = 0;   // and serve a learner with so many clusters
  double learner_probes = 0;      // and with probes, this share of the absent pairs
  bool learner_fixes = false;     // and with edges that are not its own
  kernels::CreditRule learner_rule = kernels::CreditRule::kNone;  // and give credit by this rule
  Float32Matmul matmul = Float32Matmul::kIeee;                    // of float32 on CUDA
  std::optional<int64_t> known_edges = {};  // how many edges there are, if the host knows

  // fp64 for fp64, else fp32: the type of lse and of per-edge values.
  at::ScalarType accumulator() const { return query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }
};

struct AttentionForward {
  at::Tensor output;   // [B, H, L, Dv]
  at::Tensor lse;      // [B, H, L], -inf for a row with no edge
  at::Tensor dropped;  // bit tiles of the edges that dropout removed, from implementations that keep them
  double dropped_missing = -1;  // there: heads with at most so many edges are left out
  // Who computed it, so that the backward pass asks the same one: by then an edge set may have more layouts,
  // and the choice would be another.
  std::optional<functional::Backend> backend = std::nullopt;
  bool gathered = false;  // of the kernels on CUDA: edges one by one
  std::shared_ptr<const graph::EdgeWindows> windows =
      nullptr;  // of the kernels on CUDA: lists by queries, if small
  // Of the kernels on CPU, if gradients follow: [E] logits where the learner's rule asks for them, else their
  // exponentials. run_backward overwrites them.
  at::Tensor scores = {}, exponentials = {};
};

// What to compute for the learner beside dq, dk, dv.
struct CreditRequest {
  kernels::CreditRule rule = kernels::CreditRule::kNone;
  std::optional<EdgeSet> probes;
  const EdgeCredit* learner =
      nullptr;              // for implementations that form the gradients of the memberships themselves
  at::Tensor density_grad;  // [H] gradient of the sampled density, or undefined
};

struct AttentionBackward {
  at::Tensor query, key, value;  // gradients
  at::Tensor credit;             // [E] by the rule; undefined for kNone
  at::Tensor probe_credit;       // [probes], effect of adding each; undefined without probes
  at::Tensor query_membership,
      key_side;                // gradients, from implementations that form them; then no credit is given
  bool has_discarded = false;  // those gradients hold what the learner's discarded edges send
};

// `scale` defaults to 1 / sqrt(D).
AttentionInputs attention_inputs(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                 const EdgeSet& edges, std::optional<double> scale);
// What a backward pass that serves this learner asks for.
void serve_learner(AttentionInputs& in, const EdgeCredit& credit);

// The implementation that `backend` names, or the best one for the device. `learner` is what the backward
// pass will serve.
AttentionForward run_forward(const AttentionInputs& in,
                             functional::Backend backend = functional::Backend::kAuto,
                             const EdgeCredit* learner = nullptr);
AttentionBackward run_backward(const AttentionInputs& in, const AttentionForward& forward,
                               const at::Tensor& grad_output, const CreditRequest& credit,
                               functional::Backend backend = functional::Backend::kAuto);
kernels::CreditRule credit_rule(const EdgeCredit& credit);

// `gather`: every head by its edges; else the heads with many edges in blocks
// (ops/attention/masked_blocks.h).
AttentionForward kernel_forward(const AttentionInputs& in, bool gather = true);
AttentionBackward kernel_backward(const AttentionInputs& in, const AttentionForward& forward,
                                  const at::Tensor& grad_output, const CreditRequest& credit,
                                  bool gather = true);

// ---- products with sparse per-edge values G [E]: kernels on CPU, plain ATen elsewhere ----

// G dense: [B, H, S, W] -> [B, H, L, W].
at::Tensor multiply_rows(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense);
// G^T dense: [B, H, L, W] -> [B, H, S, W].
at::Tensor multiply_columns(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense);
// left_i . right_j per edge: [E].
at::Tensor edge_dot(const EdgeSet& edges, const at::Tensor& left, const at::Tensor& right);

}  // namespace edgewise::ops
