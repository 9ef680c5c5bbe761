// Transformer-XL: segment memory and relative positions.
#include <edgewise/attention/special_cases.h>
#include <edgewise/ops/scored_attention.h>

#include <torch/types.h>

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

at::Tensor TransformerXlAttentionImpl::forward(const at::Tensor& x, const at::Tensor& memory,
                                               const std::optional<at::Tensor>& key_mask,
                                               const RandomStream& random) {
  const at::Tensor all = memory.defined() ? at::cat({memory, x}, 1) : x;  // [B, M + L, E]
  const at::Tensor query = split_heads(q_proj->forward(x), options.num_heads);
  const at::Tensor key = split_heads(k_proj->forward(all), options.num_heads);
  const at::Tensor value = split_heads(v_proj->forward(all), options.num_heads);
  const EdgeRequest request = memory_request("TransformerXlAttention", x, all, query, key, key_mask, random);
  SegmentEdges own({.segment = std::max<int64_t>(x.size(1), 1),
                    .memory = options.same_length ? options.memory : all.size(1),
                    .same_length = options.same_length});
  const EdgeSet edges = (options.source ? *options.source : own).choose(request).edges;

  at::Tensor distance = -functional::edge_distances(edges, request.query_offset);  // [E]
  if (options.clamp_length > 0) distance = distance.clamp_max(options.clamp_length);
  const at::Tensor positions =  // W_r r: [H, M + L, D]
      split_heads(r_proj->forward(sinusoid(all.size(1), options.embed_dim, x.options())).unsqueeze(0),
                  options.num_heads)
          .squeeze(0);
  const at::Tensor scores =
      (functional::edge_scores(query + content_bias.unsqueeze(1), key, edges) +
       functional::edge_type_scores(query + position_bias.unsqueeze(1), positions, edges, distance)) *
      head_scale(query);
  return out_proj->forward(merge_heads(functional::scored_edge_attention(scores, value, edges)));
}

at::Tensor TransformerXlAttentionImpl::next_memory(const at::Tensor& memory, const at::Tensor& x) const {
  const at::Tensor all = memory.defined() ? at::cat({memory, x}, 1) : x;
  const int64_t kept = std::min(options.memory, all.size(1));
  return all.narrow(1, all.size(1) - kept, kept).detach();
}

}  // namespace edgewise
