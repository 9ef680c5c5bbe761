// Transformer-XL: segment memory and relative positions.
#include <edgewise/attention/special_cases.h>
#include <edgewise/ops/scored_attention.h>

#include <torch/types.h>

#include <limits>

#include "attention/special_heads.h"

namespace edgewise {

at::Tensor sinusoid(int64_t count, int64_t dim, at::TensorOptions options) {
  const auto wide = options.dtype(at::kDouble);
  const at::Tensor frequency =
      (at::arange(0, dim, 2, wide) * (-std::log(10000.0) / static_cast<double>(dim))).exp();
  const at::Tensor angle = at::arange(count, wide).unsqueeze(1) * frequency;
  return at::cat({angle.sin(), angle.cos()}, 1).to(options);
}

TransformerXlAttentionImpl::TransformerXlAttentionImpl(TransformerXlOptions options_)
    : options(std::move(options_)) {
  const int64_t width = options.embed_dim, heads = options.num_heads;
  TORCH_CHECK_VALUE(width > 0 && heads > 0 && width % heads == 0 && width % 2 == 0,
                    "TransformerXlAttention: expected an even embed_dim that num_heads divides; got ", width,
                    " and ", heads);
  TORCH_CHECK_VALUE(options.memory >= 0 && options.clamp_length >= 0,
                    "TransformerXlAttention: expected memory and clamp_length of at least 0; got ",
                    options.memory, " and ", options.clamp_length);
  TORCH_CHECK_VALUE(
      !options.same_length || options.memory >= 1,
      "TransformerXlAttention: expected a memory of at least 1 with same_length, where a query sees "
      "`memory` keys, itself included; got 0");
  q_proj = register_module("q_proj", plain_linear(width, width));
  k_proj = register_module("k_proj", plain_linear(width, width));
  v_proj = register_module("v_proj", plain_linear(width, width));
  r_proj = register_module("r_proj", plain_linear(width, width));
  out_proj = register_module("out_proj", plain_linear(width, width));
  const auto bias = [&](const char* name, const at::Tensor& shared) {
    return shared.defined() ? shared : register_parameter(name, torch::randn({heads, width / heads}) * 0.02);
  };
  content_bias = bias("content_bias", options.content_bias);
  position_bias = bias("position_bias", options.position_bias);
  if (options.source) register_module("edges", options.source);
}

at::Tensor TransformerXlAttentionImpl::distance_keys(int64_t count, const at::Tensor& like) {
  at::Tensor table = sinusoid(count, options.embed_dim, like.options().requires_grad(false));
  if (options.clamp_length > 0)
    table = table.index_select(
        0, at::arange(count, table.options().dtype(at::kLong)).clamp_max(options.clamp_length));
  return split_heads(r_proj->forward(table).unsqueeze(0), options.num_heads).squeeze(0);
}

// Every key up to the query (with same_length: the last `memory` of them), by matrix products. query [B, H,
// L, D] stands at the end of key [B, H, S, D]; positions [H, S, D].
at::Tensor TransformerXlAttentionImpl::attend_all(const at::Tensor& query, const at::Tensor& key,
                                                  const at::Tensor& value,
                                                  const at::Tensor& positions) const {
  const at::Tensor by_distance =
      at::matmul(query + position_bias.unsqueeze(1), positions.flip(1).transpose(1, 2));  // S - 1 .. 0
  const at::Tensor scores =
      (at::matmul(query + content_bias.unsqueeze(1), key.transpose(2, 3)) + by_key(by_distance)) *
      head_scale(query);
  const at::Tensor back = distances_back(query.size(2), key.size(2), query.device());
  at::Tensor hidden = back < 0;
  if (options.same_length) hidden = hidden | (back >= options.memory);
  return at::matmul(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()).softmax(-1), value);
}

// Edge by edge, of a source or, where keys are masked, of its own.
at::Tensor TransformerXlAttentionImpl::attend_edges(const AttentionInput& input, const SpecialHeads& heads,
                                                    const at::Tensor& positions, AttentionOutput& result) {
  const EdgeRequest request = special_request("TransformerXlAttention", input, heads);
  const int64_t queries = input.x.size(1);
  SegmentEdges own({.segment = std::max<int64_t>(queries, 1),
                    .memory = options.same_length ? options.memory : heads.keys(),
                    .same_length = options.same_length});
  const EdgeChoice choice =
      scored_choice("TransformerXlAttention", options.source ? *options.source : own, request);
  const EdgeSet& edges = choice.edges;
  const auto batch = static_cast<double>(input.x.size(0));
  describe_choice(result, choice, batch * static_cast<double>(causal_pairs(queries, heads.keys())),
                  input.keep_edges);
  const at::Tensor distance = -functional::edge_distances(edges, request.query_offset);  // [E]
  const at::Tensor scores =
      (functional::edge_scores(heads.query + content_bias.unsqueeze(1), heads.key, edges) +
       functional::edge_type_scores(heads.query + position_bias.unsqueeze(1), positions, edges, distance)) *
      head_scale(heads.query);
  return functional::scored_edge_attention(scores, heads.value, edges);
}

at::Tensor TransformerXlAttentionImpl::forward(const at::Tensor& x, const at::Tensor& memory,
                                               const std::optional<at::Tensor>& key_mask,
                                               const RandomStream& random) {
  return attend({.x = x, .key_mask = key_mask, .random = random, .memory = memory}).output;
}

AttentionOutput TransformerXlAttentionImpl::attend(const AttentionInput& input) {
  SpecialHeads heads = project_heads(input, options.num_heads, q_proj, k_proj, v_proj);
  at::Tensor positions;  // [H, S, D]
  if (input.cache) {
    TORCH_CHECK_VALUE(!options.source, "TransformerXlAttention: expected no cache; ", cache_refusal());
    heads.key = input.cache->key.append(heads.key);
    heads.value = input.cache->value.append(heads.value);
    at::Tensor& kept = input.cache->positions;  // made for twice as many, so seldom anew
    if (!kept.defined() || kept.size(1) < heads.keys()) kept = distance_keys(2 * heads.keys(), input.x);
    positions = kept.narrow(1, 0, heads.keys());
  } else {
    positions = distance_keys(heads.keys(), input.x);
  }
  AttentionOutput result;
  if (options.source || input.key_mask) {
    result.output = attend_edges(input, heads, positions, result);
  } else {
    result.output = attend_all(heads.query, heads.key, heads.value, positions);
    const int64_t queries = input.x.size(1), keys = heads.keys();
    int64_t edges = causal_pairs(queries, keys);
    if (options.same_length) {
      edges = 0;
      for (int64_t p = keys - queries; p < keys; ++p) edges += std::min(p + 1, options.memory);
    }
    const double share = static_cast<double>(edges) / static_cast<double>(causal_pairs(queries, keys));
    const auto here = at::TensorOptions().device(input.x.device());
    result.density = at::full({options.num_heads}, share, here.dtype(at::kDouble));
    result.edge_count = at::full({}, input.x.size(0) * options.num_heads * edges, here.dtype(at::kLong));
  }
  result.output = out_proj->forward(merge_heads(result.output));
  return result;
}

std::string TransformerXlAttentionImpl::causal_refusal() const {
  return options.source ? options.source->causal_refusal() : std::string();
}

std::string TransformerXlAttentionImpl::cache_refusal() const {
  return source_cache_refusal(options.source);
}

at::Tensor TransformerXlAttentionImpl::next_memory(const at::Tensor& memory, const at::Tensor& x) const {
  const at::Tensor all = memory.defined() ? at::cat({memory, x}, 1) : x;
  const int64_t kept = std::min(options.memory, all.size(1));
  return all.narrow(1, all.size(1) - kept, kept).detach();
}

}  // namespace edgewise
