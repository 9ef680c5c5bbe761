// Adaptive Span: a soft, learned reach per head.
#include <edgewise/attention/special_cases.h>
#include <edgewise/ops/scored_attention.h>

#include <torch/types.h>

#include "attention/special_heads.h"

namespace edgewise {

AdaptiveSpanAttentionImpl::AdaptiveSpanAttentionImpl(AdaptiveSpanOptions options_)
    : options(std::move(options_)) {
  const int64_t width = options.embed_dim, heads = options.span.num_heads;
  TORCH_CHECK_VALUE(width > 0 && heads > 0 && width % heads == 0,
                    "AdaptiveSpanAttention: expected an embed_dim that num_heads divides; got ", width,
                    " and ", heads);
  q_proj = register_module("q_proj", plain_linear(width, width));
  k_proj = register_module("k_proj", plain_linear(width, width));
  v_proj = register_module("v_proj", plain_linear(width, width));
  out_proj = register_module("out_proj", plain_linear(width, width));
  spans = register_module("spans", std::make_shared<SpanEdges>(options.span));
  const int64_t count = options.is_causal ? options.span.limit : 2 * options.span.limit;
  positions = options.positions.defined()
                  ? options.positions
                  : register_parameter("positions", torch::randn({count, width / heads}));
  TORCH_CHECK_VALUE(positions.sizes() == at::IntArrayRef({count, width / heads}),
                    "AdaptiveSpanAttention: expected positions [", count, ", ", width / heads, "]; got ",
                    positions.sizes());
  if (options.source) register_module("edges", options.source);
}

at::Tensor AdaptiveSpanAttentionImpl::forward(const at::Tensor& x, const at::Tensor& memory,
                                              const std::optional<at::Tensor>& key_mask,
                                              const RandomStream& random) {
  const int64_t heads = options.span.num_heads;
  const at::Tensor all = memory.defined() ? at::cat({memory, x}, 1) : x;
  const at::Tensor query = split_heads(q_proj->forward(x), heads),
                   key = split_heads(k_proj->forward(all), heads),
                   value = split_heads(v_proj->forward(all), heads);
  EdgeRequest request = memory_request("AdaptiveSpanAttention", x, all, query, key, key_mask, random);
  request.is_causal = options.is_causal;
  const EdgeSet edges = (options.source ? *options.source : *spans).choose(request).edges;
  at::Tensor types = spans->reach(request, edges);
  if (!options.is_causal) {
    const at::Tensor on_right = functional::edge_distances(edges, request.query_offset) > 0;
    types = types + on_right.to(at::kLong) * options.span.limit;
  }
  const at::Tensor scores = (functional::edge_scores(query, key, edges) +
                             functional::edge_type_scores(query, positions.unsqueeze(0), edges, types)) *
                            head_scale(query);
  const at::Tensor gates = spans->gates(request, edges).to(scores.scalar_type());
  return out_proj->forward(merge_heads(functional::scored_edge_attention(scores, value, edges, gates)));
}

}  // namespace edgewise
