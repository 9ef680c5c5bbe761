// The methods that SAC contains, each an edge source plus its own score rule: Transformer-XL, Adaptive Span
// and BP-Transformer. (Vanilla attention is MultiheadEdgeAttention with FullEdges, or without a source.)
//
// Each takes another source in place of its own edges, for example SacEdges with these edges as candidates.
// The source learns by reward, if at all: the scores here say nothing about single edges.
// As in the published models, projections have no bias. Scores run in plain ATen, linear in edges
// (ops/scored_attention.h); Transformer-XL, which leaves no pair out, and wide spans use matrix products over
// all pairs instead.
#pragma once

#include <edgewise/attention/causal_attention.h>
#include <edgewise/edges/special_case_edges.h>

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <optional>

namespace edgewise {

struct SpecialHeads;  // queries, keys, values

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

class TransformerXlAttentionImpl : public CausalAttention {
 public:
  explicit TransformerXlAttentionImpl(TransformerXlOptions options);

  // x [B, L, E] is one segment, memory [B, M, E] what stands before it (undefined = nothing); key_mask [B, M
  // + L].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& memory = {},
                     const std::optional<at::Tensor>& key_mask = std::nullopt,
                     const RandomStream& random = {});
  AttentionOutput attend(const AttentionInput& input) override;
  int64_t memory() const override { return options.memory; }
  bool is_relative() const override { return true; }
  std::string causal_refusal() const override;
  std::string cache_refusal() const override;
  // The last options.memory states of [memory ; x], detached: the memory of the next segment.
  at::Tensor next_memory(const at::Tensor& memory, const at::Tensor& x) const;

  TransformerXlOptions options;
  torch::nn::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, r_proj{nullptr}, out_proj{nullptr};
  at::Tensor content_bias, position_bias;  // [H, D]

 private:
  at::Tensor distance_keys(int64_t count,
                           const at::Tensor& like);  // W_r r of distances 0 .. count - 1: [H, count, D]
  at::Tensor attend_all(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const at::Tensor& positions) const;
  at::Tensor attend_edges(const AttentionInput& input, const SpecialHeads& heads, const at::Tensor& positions,
                          AttentionOutput& result);
};
TORCH_MODULE(TransformerXlAttention);

// The fixed encoding of distances 0 .. count - 1: sines, then cosines, [count, dim].
at::Tensor sinusoid(int64_t count, int64_t dim, at::TensorOptions options);

// ---- Adaptive Span: s_x = (q_i . k_j + q_i . p_x) / sqrt(D), weights proportional to m_h(x) exp(s_x) ----
//
// The published code adds 1e-8 to the normaliser; here a row whose gates are all 0 gives 0 instead.

// kAuto: all pairs by matrix products on a GPU, and on the CPU where spans leave at most nine pairs of ten
// out; else edge by edge.
enum class SpanForm { kAuto, kEdges, kAllPairs };

struct AdaptiveSpanOptions {
  int64_t embed_dim = 0;
  SpanEdgesOptions span;
  bool is_causal = true;
  at::Tensor positions = {};  // p [limit, D], or [2 limit, D] for both sides; undefined = this layer's own
  EdgeSourcePtr source = {};  // null = the SpanEdges themselves
  int64_t memory = 0;         // in a decoder: tokens kept before a segment
  double span_weight = 0;     // lambda: loss() = lambda * mean span
  SpanForm form = SpanForm::kAuto;
};

class AdaptiveSpanAttentionImpl : public CausalAttention {
 public:
  explicit AdaptiveSpanAttentionImpl(AdaptiveSpanOptions options);

  at::Tensor forward(const at::Tensor& x, const at::Tensor& memory = {},
                     const std::optional<at::Tensor>& key_mask = std::nullopt,
                     const RandomStream& random = {});
  AttentionOutput attend(const AttentionInput& input) override;
  int64_t memory() const override { return options.memory; }
  bool is_relative() const override { return true; }
  std::string causal_refusal() const override;
  std::string cache_refusal() const override;
  at::Tensor loss() const override;
  void after_step() override;

  AdaptiveSpanOptions options;
  torch::nn::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, out_proj{nullptr};
  std::shared_ptr<SpanEdges> spans;  // mean_span() for the span loss, clamp_span() after every step
  at::Tensor positions;              // right-hand keys use the second half

 private:
  bool uses_all_pairs(const at::Tensor& query, int64_t keys) const;
  at::Tensor edges_per_query(int64_t queries, int64_t keys) const;  // causal, without a mask: [H, L] int64
  at::Tensor attend_all(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) const;
  EdgeChoice choose(const EdgeRequest& request);
  at::Tensor attend_edges(const EdgeRequest& request, const at::Tensor& value, const EdgeSet& edges);
};
TORCH_MODULE(AdaptiveSpanAttention);

// ---- BP-Transformer: s_ij = (q_i . k_j + q_i . e_type) / sqrt(D) over tokens and span nodes ----

struct TreeAttentionOptions {
  int64_t embed_dim = 0;
  int64_t num_heads = 1;
  TreeEdgesOptions tree;
  EdgeSourcePtr source = {};  // null = TreeEdges
};

class TreeAttentionImpl : public CausalAttention {
 public:
  explicit TreeAttentionImpl(TreeAttentionOptions options);

  // nodes [B, nodes, E], the tokens first; token_mask [B, tokens].
  at::Tensor forward(const at::Tensor& nodes, const std::optional<at::Tensor>& token_mask = std::nullopt,
                     const RandomStream& random = {});
  // input.x holds nodes. With a cache: the new tokens and the spans that they complete (new_rows); a span
  // that is not complete is nobody's key yet.
  AttentionOutput attend(const AttentionInput& input) override;
  bool is_relative() const override { return true; }
  int64_t extra_rows() const override { return tree->graph().nodes - options.tree.tokens; }
  std::vector<int64_t> new_rows(int64_t first, int64_t count) const override;
  std::string causal_refusal() const override;
  std::string cache_refusal() const override;
  // Tokens, and zeros for the span nodes, as the published model begins: [B, tokens, E] -> [B, nodes, E].
  at::Tensor start(const at::Tensor& tokens) const;

  TreeAttentionOptions options;
  torch::nn::Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, out_proj{nullptr};
  std::shared_ptr<TreeEdges> tree;
  at::Tensor types;  // [type_count, D], shared by heads

 private:
  // The edges of all rows, which every pass over whole sequences of one batch size shares.
  struct Edges {
    EdgeSet edges;
    at::Tensor types;  // [E]
  };
  const Edges& own_edges(const EdgeRequest& request);
  Edges row_edges(const std::vector<int64_t>& rows, const at::Tensor& query) const;
  at::Tensor attend_edges(const SpecialHeads& heads, const Edges& edges);

  std::optional<Edges> own_;
};
TORCH_MODULE(TreeAttention);

}  // namespace edgewise
