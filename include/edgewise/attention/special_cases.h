// The methods that SAC contains, each an edge source plus its own score rule: Transformer-XL, Adaptive Span
// and BP-Transformer. (Vanilla attention is MultiheadEdgeAttention with FullEdges, or without a source.)
//
// Each takes another source in place of its own edges, for example SacEdges with these edges as candidates.
// As in the published models, projections have no bias. Scores run in plain ATen, linear in edges
// (ops/scored_attention.h).
#pragma once

#include <edgewise/edges/special_cases.h>

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <optional>

namespace edgewise {

// ---- Transformer-XL: s_ij = [(q_i + u) . k_j + (q_i + v) . (W_r r_{p - j})] / sqrt(D) ----

struct TransformerXlOptions {
  int64_t embed_dim = 0;
  int64_t num_heads = 1;
  int64_t memory = 0;        // tokens kept before a segment
  bool same_length = false;  // evaluation: every query uses `memory` keys, itself included
  int64_t clamp_length = 0;  // farther keys count as this far; 0 = no limit
  // u and v [H, D], one pair for all layers of the published model; undefined = this layer's own.
  at::Tensor content_bias = {}, position_bias = {};
  EdgeSourcePtr source = {};  // null = SegmentEdges; any source must be causal
};

class TransformerXlAttentionImpl : public torch::nn::Module {
 public:
  explicit TransformerXlAttentionImpl(TransformerXlOptions options);

  // x [B, L, E] is one segment, memory [B, M, E] what stands before it (undefined = nothing); key_mask [B, M
  // + L].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& memory = {},
                     const std::optional<at::Tensor>& key_mask = std::nullopt,
                     const RandomStream& random = {});
  // The last options.memory states of [memory ; x], detached: the memory of the next segment.
  at::Tensor next_memory(const at::Tensor& memory, const at::Tensor& x) const;

  TransformerXlOptions options;
  torch::nn::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, r_proj{nullptr}, out_proj{nullptr};
  at::Tensor content_bias, position_bias;  // [H, D]
};
TORCH_MODULE(TransformerXlAttention);

// The fixed encoding of distances 0 .. count - 1: sines, then cosines, [count, dim].
at::Tensor sinusoid(int64_t count, int64_t dim, at::TensorOptions options);

// ---- Adaptive Span: s_x = (q_i . k_j + q_i . p_x) / sqrt(D), weights proportional to m_h(x) exp(s_x) ----
//
// The published code adds 1e-8 to the normaliser; here a row whose gates are all 0 gives 0 instead.

struct AdaptiveSpanOptions {
  int64_t embed_dim = 0;
  SpanEdgesOptions span;
  bool is_causal = true;
  at::Tensor positions = {};  // p [limit, D], or [2 limit, D] for both sides; undefined = this layer's own
  EdgeSourcePtr source = {};  // null = the SpanEdges themselves
};

class AdaptiveSpanAttentionImpl : public torch::nn::Module {
 public:
  explicit AdaptiveSpanAttentionImpl(AdaptiveSpanOptions options);

  at::Tensor forward(const at::Tensor& x, const at::Tensor& memory = {},
                     const std::optional<at::Tensor>& key_mask = std::nullopt,
                     const RandomStream& random = {});

  AdaptiveSpanOptions options;
  torch::nn::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, out_proj{nullptr};
  std::shared_ptr<SpanEdges> spans;  // mean_span() for the span loss, clamp_span() after every step
  at::Tensor positions;              // right-hand keys use the second half
};
TORCH_MODULE(AdaptiveSpanAttention);

// ---- BP-Transformer: s_ij = (q_i . k_j + q_i . e_type) / sqrt(D) over tokens and span nodes ----

struct TreeAttentionOptions {
  int64_t embed_dim = 0;
  int64_t num_heads = 1;
  TreeEdgesOptions tree;
  EdgeSourcePtr source = {};  // null = TreeEdges
};

class TreeAttentionImpl : public torch::nn::Module {
 public:
  explicit TreeAttentionImpl(TreeAttentionOptions options);

  // nodes [B, nodes, E], the tokens first; token_mask [B, tokens].
  at::Tensor forward(const at::Tensor& nodes, const std::optional<at::Tensor>& token_mask = std::nullopt,
                     const RandomStream& random = {});
  // Tokens, and zeros for the span nodes, as the published model begins: [B, tokens, E] -> [B, nodes, E].
  at::Tensor start(const at::Tensor& tokens) const;

  TreeAttentionOptions options;
  torch::nn::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, out_proj{nullptr};
  std::shared_ptr<TreeEdges> tree;
  at::Tensor types;  // [type_count, D], shared by heads
};
TORCH_MODULE(TreeAttention);

}  // namespace edgewise
