// Attention over edges, differentiable. Same order and meaning as scaled_dot_product_attention, with edges in
// place of a mask: softmax over the chosen keys only. A row with no edge gives output 0 and gradient 0.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/edge_learner.h>
#include <edgewise/ops/random_stream.h>

#include <optional>

namespace edgewise::functional {

// kAuto: the first kernel that takes the call (src/ops/attention/kernel_table.cpp). The others ask for our
// kernels, for the reference on lists of edges, or for the reference on masked dense matrices.
enum class Backend { kAuto, kKernel, kReference, kDense };

struct EdgeAttentionOptions {
  double dropout_p = 0;         // dropout on the attention weights, counter-based from `random`
  bool is_causal = false;       // drop edges with key > query
  std::optional<double> scale;  // default 1 / sqrt(D)
  RandomStream random;
  Backend backend = Backend::kAuto;
};

// Throws with a sentence unless shapes, dtypes, devices and options fit together. Every call below checks
// this itself.
void check_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const EdgeSet& edges, const EdgeAttentionOptions& options = {});

// Called in backward passes: gradients of gradients would silently be 0.
void check_differentiated_once();

// query [B, H, L, D], key [B, H, S, D], value [B, H, S, Dv], all of one dtype (fp32, fp64, bf16) -> [B, H, L,
// Dv]. Edges that were born as squares go through the kernels over squares, which also take key and value of
// fewer heads Hk: query head h reads key head h / (H / Hk).
at::Tensor edge_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const EdgeSet& edges, const EdgeAttentionOptions& options = {});

struct LearnedAttention {
  at::Tensor output;  // [B, H, L, Dv]
  // [H], decided edges / learner.pairs_per_head; its gradient reaches the decided edges. Undefined without
  // memberships.
  at::Tensor sampled_density;
};

// The same, and the backward pass also teaches the learner. It has chosen the edges, so is_causal is an
// error.
LearnedAttention edge_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                const EdgeSet& edges, const EdgeLearner& learner,
                                const EdgeAttentionOptions& options = {});

}  // namespace edgewise::functional
