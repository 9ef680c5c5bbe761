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

EdgeChoice AdaptiveSpanAttentionImpl::choose(const EdgeRequest& request) {
  if (!options.source) return allowed_choice(*spans, request);
  EdgeChoice choice = scored_choice("AdaptiveSpanAttention", *options.source, request);
  // Beyond the spans weights are 0, and there are no positions.
  choice.edges = choice.edges.kept(choice.edges.contained_in(spans->choose(request).edges));
  return choice;
}

at::Tensor AdaptiveSpanAttentionImpl::attend_edges(const EdgeRequest& request, const at::Tensor& value,
                                                   const EdgeSet& edges) {
  const at::Tensor &query = request.query, &key = request.key;
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
  return attend({.x = x, .key_mask = key_mask, .random = random, .memory = memory}).output;
}

AttentionOutput AdaptiveSpanAttentionImpl::attend(const AttentionInput& input) {
  SpecialHeads heads = project_heads(input, options.span.num_heads, q_proj, k_proj, v_proj);
  if (input.cache) {
    TORCH_CHECK_VALUE(options.is_causal && !options.source,
                      "AdaptiveSpanAttention: expected is_causal, and its own edges, with a cache");
    heads.key = input.cache->key.append(heads.key);
    heads.value = input.cache->value.append(heads.value);
  }
  EdgeRequest request = special_request("AdaptiveSpanAttention", input, heads);
  request.is_causal = options.is_causal;
  const int64_t batch = input.x.size(0), queries = input.x.size(1), keys = heads.keys();
  const bool is_countable = options.is_causal && !options.source && !input.key_mask;
  AttentionOutput result;
  if (is_countable && uses_all_pairs(heads.query, keys)) {
    result.output = attend_all(heads.query, heads.key, heads.value);
  } else {
    const EdgeChoice choice = choose(request);
    const int64_t pairs = options.is_causal ? causal_pairs(queries, keys) : queries * keys;
    if (!is_countable) describe_choice(result, choice, static_cast<double>(batch * pairs), input.keep_edges);
    result.output = attend_edges(request, heads.value, choice.edges);
  }
  if (is_countable) {
    const at::Tensor edges = edges_per_query(queries, keys).sum(1);  // [H]
    result.density = edges.to(at::kDouble) / static_cast<double>(causal_pairs(queries, keys));
    result.edge_count = edges.sum() * batch;
  }
  result.output = out_proj->forward(merge_heads(result.output));
  return result;
}

std::string AdaptiveSpanAttentionImpl::causal_refusal() const {
  if (!options.is_causal) return "it looks to both sides; set the option is_causal";
  return options.source ? options.source->causal_refusal() : std::string();
}

std::string AdaptiveSpanAttentionImpl::cache_refusal() const {
  return source_cache_refusal(options.source);
}

at::Tensor AdaptiveSpanAttentionImpl::loss() const {
  return options.span_weight > 0 ? options.span_weight * spans->mean_span() : at::Tensor();
}

void AdaptiveSpanAttentionImpl::after_step() {
  spans->clamp_span();
}

}  // namespace edgewise
