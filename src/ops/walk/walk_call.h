// What the fused walks of SacEdges share: their inputs and rules, and, on the CPU, what one call keeps and
// how it becomes the parameters of a kernel.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>

#include "kernels/walk_params.h"

namespace edgewise::ops {

// Differentiable inputs, all of one dtype (fp32 or fp64).
struct WalkTensors {
  at::Tensor query_nodes;  // [B, G, L, P]
  at::Tensor key_nodes;    // [B, G, S, P]
  at::Tensor weight_ih;    // [G, P, 4P]
  at::Tensor weight_hh;    // [G, P, 4P]
  at::Tensor bias;         // [G, 4P]
  at::Tensor distance;     // [G, L + S - 1], by j - i + L - 1; undefined = nothing is added
};

// What may be chosen, and how; kernels/walk_params.h.
struct WalkRules {
  at::Tensor first, last, excluded;      // [L] int64
  int64_t gap = 0;                       // around `excluded`
  std::optional<at::Tensor> key_mask;    // [B, S] bool
  std::optional<at::Tensor> query_mask;  // [B, L] bool; pairs only
  at::Tensor limits;                     // [B, L] int64; pairs: [B]
  int64_t steps = 0;                     // the largest limit
  bool duplicates = false;
  kernels::WalkChoice choice = kernels::WalkChoice::kSample;
  at::Tensor stream_keys;    // [B * G] int64; kSample
  bool with_states = false;  // whether the states are wanted; rooted only
};

// One call on the CPU: everything but its differentiable inputs.
struct WalkCall : torch::CustomClassHolder {
  WalkRules rules;
  at::Tensor destination, taken, chosen;  // int64, bool, bool
  bool has_distance = false;

  // Zeros for what the walk will choose.
  void make_actions(at::IntArrayRef sizes, const at::TensorOptions& options);
  // queries [B, G, L, ..], keys [B, G, S, P].
  void fill(kernels::WalkParams& params, const at::Tensor& queries, const at::Tensor& keys) const;

  template <typename T>
  void fill_nodes(kernels::NodeWalkParams<T>& p, const WalkTensors& in, const at::Tensor& log_prob,
                  const at::Tensor& entropy) const {
    fill(p, in.query_nodes, in.key_nodes);
    p.query_nodes = in.query_nodes.const_data_ptr<T>();
    p.key_nodes = in.key_nodes.const_data_ptr<T>();
    p.weight_ih = in.weight_ih.const_data_ptr<T>();
    p.weight_hh = in.weight_hh.const_data_ptr<T>();
    p.bias = in.bias.const_data_ptr<T>();
    if (has_distance) p.distance = in.distance.const_data_ptr<T>();
    p.log_prob = log_prob.mutable_data_ptr<T>();
    p.entropy = entropy.mutable_data_ptr<T>();
  }
};

// The keys of rows of actions in order: [.., T] int32, `none` for those that were not taken, at the end.
struct RowKeys {
  at::Tensor keys, order;  // order, int64: the action of each; undefined where nobody asks
  bool all = false;        // every action was taken
};
// destination, taken [.., T], contiguous and on the CPU.
RowKeys sorted_rows(const at::Tensor& destination, const at::Tensor& taken, int64_t none, bool with_order);

// Where nothing is added an empty tensor stands for the distances: autograd wants defined inputs.
at::Tensor distance_or_empty(const WalkTensors& tensors);
// Without a history, contiguous.
WalkTensors plain(const WalkTensors& tensors);
// [B, G, N, P] -> [B * G, P, N'], N' = padded_keys(N), zeros beyond N.
at::Tensor transposed_nodes(const at::Tensor& nodes);

}  // namespace edgewise::ops
