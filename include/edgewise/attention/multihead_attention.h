// MultiheadEdgeAttention: attention of a sequence to itself or to another one, whose heads compute only the
// edges that an EdgeSource chooses; or, to compare with, an AttentionMethod that has no edges.
//
// Parameters are named and shaped as in Python's nn.MultiheadAttention (in_proj_weight, in_proj_bias,
// out_proj.weight, out_proj.bias), so weights interchange. Without a source or a method it is ordinary dense
// attention. CausalEdgeAttention is the same in a decoder.
#pragma once

#include <edgewise/attention/attention_method.h>
#include <edgewise/attention/causal_attention.h>
#include <edgewise/edges/edge_source.h>
#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/random_stream.h>

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <iosfwd>
#include <optional>

namespace edgewise {

struct MultiheadEdgeAttentionOptions {
  MultiheadEdgeAttentionOptions(int64_t embed_dim, int64_t num_heads);

  int64_t embed_dim;
  int64_t num_heads;          // divides embed_dim
  double dropout_p = 0;       // on the attention weights, in training only
  bool is_causal = false;     // query i uses keys j <= i
  EdgeSourcePtr source;       // null = dense attention
  AttentionMethodPtr method;  // in place of edges; not together with a source, and not causal
  // One projection for queries and keys, whose keys are divided by their norm (Reformer): in_proj_weight [2E,
  // E].
  bool shared_qk = false;
  bool in_proj_bias = true;
  // Queries and keys are turned by their places before they meet (RoFormer): the pair (2c, 2c + 1) of head
  // dim D by place / 10000^(2c / D). D is even; not across sequences.
  bool rotary = false;
};

class MultiheadEdgeAttentionImpl : public virtual SelfAttention {
 public:
  explicit MultiheadEdgeAttentionImpl(MultiheadEdgeAttentionOptions options);

  // A query with no key, or that is padding, attends to nothing: its output is out_proj.bias. Has no memory.
  // Across sequences (AttentionInput::source) a cache keeps the keys and values of the source.
  AttentionOutput attend(const AttentionInput& input) override;
  // The same in brief: x [B, N, E], key_mask [B, N] bool (true = valid token).
  AttentionOutput forward(const at::Tensor& x, const std::optional<at::Tensor>& key_mask = std::nullopt,
                          const RandomStream& random = {}, bool keep_edges = false);

  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  MultiheadEdgeAttentionOptions options;
  at::Tensor in_proj_weight;  // [3E, E]: query, key, value; [2E, E] with shared_qk
  at::Tensor in_proj_bias;    // [3E] or [2E]; undefined without bias
  torch::nn::Linear out_proj{nullptr};

 protected:
  struct Heads;  // q, k, v: [B, H, N, D]
  // The first token of x stands at place `first`.
  Heads project(const at::Tensor& x, int64_t first = 0) const;
  Heads project_across(const AttentionInput& input) const;
  void check_across(const AttentionInput& input) const;
  // Without the cache's rows: `heads` has them.
  AttentionOutput attend_heads(const Heads& heads, const AttentionInput& input);

 private:
  AttentionOutput attend_dense(const Heads& heads, const AttentionInput& input) const;
  AttentionOutput attend_edges(const Heads& heads, const AttentionInput& input);
  AttentionOutput attend_method(const Heads& heads, const AttentionInput& input) const;
};
TORCH_MODULE(MultiheadEdgeAttention);

// For decoders: is_causal whatever the options say, and with a cache. No method.
class CausalEdgeAttentionImpl : public MultiheadEdgeAttentionImpl, public CausalAttention {
 public:
  explicit CausalEdgeAttentionImpl(MultiheadEdgeAttentionOptions options);

  AttentionOutput attend(const AttentionInput& input) override;
  std::string causal_refusal() const override;
  std::string cache_refusal() const override;
};
TORCH_MODULE(CausalEdgeAttention);

}  // namespace edgewise
