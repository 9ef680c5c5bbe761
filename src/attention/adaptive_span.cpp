// Adaptive Span: a soft, learned reach per head.
#include <edgewise/attention/special_cases.h>
#include <edgewise/ops/scored_attention.h>

#include <torch/types.h>

#include <limits>

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

at::Tensor AdaptiveSpanAttentionImpl::edges_per_query(int64_t queries, int64_t keys) const {
  const auto limit = static_cast<double>(options.span.limit), ramp = static_cast<double>(options.span.ramp);
  const at::Tensor most =  // as SpanEdges counts: [H, 1]
      (spans->span.detach().to(at::kDouble) * limit + ramp)
          .ceil()
          .to(at::kLong)
          .clamp_max(options.span.limit);
  const at::Tensor before = at::arange(queries, most.options()) + (keys - queries) +
                            (options.span.include_self ? 1 : 0);  // keys that there are: [L]
  return most.unsqueeze(1).minimum(before.unsqueeze(0));
}

bool AdaptiveSpanAttentionImpl::uses_all_pairs(const at::Tensor& query, int64_t keys) const {
  if (options.form != SpanForm::kAuto) return options.form == SpanForm::kAllPairs;
  if (!query.is_cpu()) return true;
  constexpr double kWide = 0.1;
  const double edges = edges_per_query(query.size(2), keys).to(at::kDouble).mean().item<double>();
  return edges > kWide * static_cast<double>(keys);
}

// The same by matrix products over all pairs, each with its gate; causal, query [B, H, L, D] at the end of
// key [B, H, S, D].
at::Tensor AdaptiveSpanAttentionImpl::attend_all(const at::Tensor& query, const at::Tensor& key,
                                                 const at::Tensor& value) const {
  const int64_t keys = key.size(2), limit = options.span.limit, own = options.span.include_self ? 0 : 1;
  // Row d of the table is the key p - d; x = d - own. Rows that no edge uses are 0.
  at::Tensor table = at::constant_pad_nd(positions, {0, 0, own, 0});
  table = table.size(0) < keys ? at::constant_pad_nd(table, {0, 0, 0, keys - table.size(0)})
                               : table.narrow(0, 0, keys);
  const at::Tensor scores =
      ((at::matmul(query, key.transpose(2, 3)) + by_key(at::matmul(query, table.flip(0).transpose(0, 1)))) *
       head_scale(query))
          .to(spans->span.scalar_type());
  const at::Tensor far = distances_back(query.size(2), keys, query.device()) - own;  // x: [L, S]
  const auto ramp = static_cast<double>(options.span.ramp);
  const at::Tensor z = (spans->span * static_cast<double>(limit)).view({-1, 1, 1});
  const at::Tensor gates = ((ramp + z - far.to(z.scalar_type())) / ramp)
                               .clamp(0, 1)
                               .masked_fill((far < 0) | (far >= limit), 0);  // [H, L, S]
  const double none = -std::numeric_limits<double>::infinity();
  at::Tensor top = scores.detach().masked_fill(gates.detach() <= 0, none).amax(-1, true);
  top = at::where(top.isfinite(), top, at::zeros_like(top));
  const at::Tensor shares = (scores - top).clamp_max(0).exp() * gates;
  const at::Tensor total = shares.sum(-1, true);
  const at::Tensor weights = shares / at::where(total > 0, total, at::ones_like(total));
  return at::matmul(weights.to(value.scalar_type()), value);
}

at::Tensor AdaptiveSpanAttentionImpl::attend_edges(const EdgeRequest& request, const at::Tensor& value) {
  const at::Tensor &query = request.query, &key = request.key;
  const EdgeSet edges = allowed_choice(options.source ? *options.source : *spans, request).edges;
  at::Tensor types = spans->reach(request, edges);
  if (!options.is_causal) {
    const at::Tensor on_right = functional::edge_distances(edges, request.query_offset) > 0;
    types = types + on_right.to(at::kLong) * options.span.limit;
  }
  const at::Tensor scores = (functional::edge_scores(query, key, edges) +
                             functional::edge_type_scores(query, positions.unsqueeze(0), edges, types)) *
                            head_scale(query);
  const at::Tensor gates = spans->gates(request, edges).to(scores.scalar_type());
  return functional::scored_edge_attention(scores, value, edges, gates);
}

at::Tensor AdaptiveSpanAttentionImpl::forward(const at::Tensor& x, const at::Tensor& memory,
                                              const std::optional<at::Tensor>& key_mask,
                                              const RandomStream& random) {
  const int64_t heads = options.span.num_heads;
  const at::Tensor all = memory.defined() ? at::cat({memory, x}, 1) : x;
  const at::Tensor query = split_heads(q_proj->forward(x), heads),
                   key = split_heads(k_proj->forward(all), heads),
                   value = split_heads(v_proj->forward(all), heads);
  if (options.is_causal && !options.source && !key_mask && uses_all_pairs(query, key.size(2)))
    return out_proj->forward(merge_heads(attend_all(query, key, value)));
  EdgeRequest request = memory_request("AdaptiveSpanAttention", x, all, query, key, key_mask, random);
  request.is_causal = options.is_causal;
  return out_proj->forward(merge_heads(attend_edges(request, value)));
}

AttentionOutput AdaptiveSpanAttentionImpl::attend(const CausalInput& input) {
  TORCH_CHECK_VALUE(options.is_causal && !options.source,
                    "AdaptiveSpanAttention: expected is_causal and its own edges in a decoder");
  const int64_t batch = input.x.size(0), queries = input.x.size(1), heads = options.span.num_heads;
  int64_t keys = queries;
  AttentionOutput result;
  if (input.cache) {
    EdgeRequest request;
    request.query = split_heads(q_proj->forward(input.x), heads);
    request.key = input.cache->key.append(split_heads(k_proj->forward(input.x), heads));
    const at::Tensor value = input.cache->value.append(split_heads(v_proj->forward(input.x), heads));
    keys = request.key.size(2);
    request.is_causal = true;
    request.query_offset = keys - queries;
    const at::Tensor attended = uses_all_pairs(request.query, keys)
                                    ? attend_all(request.query, request.key, value)
                                    : attend_edges(request, value);
    result.output = out_proj->forward(merge_heads(attended));
  } else {
    if (input.memory.defined()) keys += input.memory.size(1);
    result.output = forward(input.x, input.memory, std::nullopt, input.random);
  }
  const at::Tensor edges = edges_per_query(queries, keys).sum(1);  // [H]
  result.density = edges.to(at::kDouble) / static_cast<double>(causal_pairs(queries, keys));
  result.edge_count = edges.sum() * batch;
  return result;
}

at::Tensor AdaptiveSpanAttentionImpl::loss() const {
  return options.span_weight > 0 ? options.span_weight * spans->mean_span() : at::Tensor();
}

void AdaptiveSpanAttentionImpl::after_step() {
  spans->clamp_span();
}

}  // namespace edgewise
