// The edge sets of the methods that SAC contains: Transformer-XL, Adaptive Span and BP-Transformer. Vanilla
// attention is FullEdges. Each can also be the candidates of SacEdges: with alpha of at least its largest
// degree, SacEdges chooses exactly these edges.
#pragma once

#include <edgewise/edges/edge_source.h>

#include <vector>

namespace edgewise {

// Transformer-XL: segments of `segment` tokens, each with the last `memory` tokens before it. The query at
// position p of a segment that begins at s uses keys max(0, s - memory) .. p. The first segment begins at
// query_offset, so one segment behind its memory, or a whole sequence, can be asked for. With same_length
// (evaluation) every query uses the last `memory` keys, itself included.
struct SegmentEdgesOptions {
  int64_t segment = 0;
  int64_t memory = 0;
  bool same_length = false;
};
class SegmentEdges : public EdgeSource {
 public:
  explicit SegmentEdges(SegmentEdgesOptions options);
  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }
  std::string cross_refusal() const override {
    return "a segment goes up to the place of its query among the keys";
  }

  SegmentEdgesOptions options;
};

// Adaptive Span: head h looks z_h = span_h * limit tokens back, softly:
//   m_h(x) = clamp((ramp + z_h - x) / ramp, 0, 1),  x = 0, 1, ... counted from the nearest key, x < limit.
// Causal: x = p - 1 - j, as published, or x = p - j with include_self. Bidirectional (a request that is not
// causal): x = |p - j| on both sides. Edges are the keys with m > 0, head by head, so that a short head is
// cheap beside a long one.
struct SpanEdgesOptions {
  int64_t num_heads = 1;
  int64_t limit = 1024;       // L
  int64_t ramp = 32;          // R
  bool include_self = false;  // causal: the published model does not attend to the current token
};
class SpanEdges : public EdgeSource {
 public:
  explicit SpanEdges(SpanEdgesOptions options);
  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }
  std::string cross_refusal() const override {
    return "a span is counted from the place of its query among the keys";
  }

  // m of every edge of choose(request), differentiable in span: [E].
  at::Tensor gates(const EdgeRequest& request, const EdgeSet& edges) const;
  // x of every edge: [E] int64.
  at::Tensor reach(const EdgeRequest& request, const EdgeSet& edges) const;
  // limit * mean over heads of span, for the span loss.
  at::Tensor mean_span() const;
  void clamp_span();  // to [0, 1], after every optimiser step

  SpanEdgesOptions options;
  at::Tensor span;  // [H], z / limit
};

// BP-Transformer: tokens and a binary tree of span nodes over them. Node q of level j covers tokens q 2^j ..
// (q + 1) 2^j - 1; level 0 are the tokens; nodes are numbered level by level.
//   affiliated: a node uses every token it covers (a token: itself);
//   contextual: a token uses, level by level upwards, the next `step` nodes on its left and (unless causal)
//   on its right, so that every token it may see is covered exactly once.
struct TreeGraph {
  std::vector<int64_t> level_sizes;  // tokens, ceil(tokens / 2), ..., 1
  int64_t nodes = 0;
  at::Tensor row_offsets;  // [nodes + 1] int64
  at::Tensor col_indices;  // [E] int32
  // [E] int64: (2 step + 1) min(level, clip) + 0 (affiliated), 2 s + 1 (s-th left), 2 s + 2 (s-th right). A
  // child taken in place of its parent has its parent's type.
  at::Tensor types;

  int64_t edge_count() const { return col_indices.size(0); }
};
struct TreeEdgesOptions {
  int64_t tokens = 0;  // n, any number: not only powers of two
  int64_t step = 1;    // k
  bool is_causal = false;
  int64_t clip = 6;  // levels above share their types
};
TreeGraph tree_graph(const TreeEdgesOptions& options);

// Requests are over all nodes: L = S = nodes. key_mask, if given, is over nodes too (TreeEdges::node_mask).
class TreeEdges : public EdgeSource {
 public:
  explicit TreeEdges(TreeEdgesOptions options);
  EdgeChoice choose(const EdgeRequest& request) override;
  bool respects_masks() const override { return true; }
  std::string cross_refusal() const override { return "queries and keys are the nodes of one tree"; }

  // A node is valid when it covers a valid token: [B, tokens] bool -> [B, nodes] bool.
  at::Tensor node_mask(const at::Tensor& token_mask) const;
  // Types of the edges of choose(): [E] int64.
  at::Tensor types(const EdgeSet& edges) const;
  const TreeGraph& graph() const { return graph_; }
  int64_t type_count() const;

  TreeEdgesOptions options;

 private:
  TreeGraph graph_;
};

}  // namespace edgewise
