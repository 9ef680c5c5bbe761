// BP-Transformer: attention over tokens and a binary tree of span nodes.
#include <edgewise/attention/special_cases.h>
#include <edgewise/ops/scored_attention.h>

#include <torch/types.h>

#include "attention/special_heads.h"

namespace edgewise {

TreeAttentionImpl::TreeAttentionImpl(TreeAttentionOptions options_) : options(std::move(options_)) {
  const int64_t width = options.embed_dim, heads = options.num_heads;
  TORCH_CHECK_VALUE(width > 0 && heads > 0 && width % heads == 0,
                    "TreeAttention: expected an embed_dim that num_heads divides; got ", width, " and ",
                    heads);
  q_proj = register_module("q_proj", plain_linear(width, width));
  k_proj = register_module("k_proj", plain_linear(width, width));
  v_proj = register_module("v_proj", plain_linear(width, width));
  out_proj = register_module("out_proj", plain_linear(width, width));
  tree = register_module("tree", std::make_shared<TreeEdges>(options.tree));
  types = register_parameter("types", torch::randn({tree->type_count(), width / heads}) * 0.02);
  if (options.source) register_module("edges", options.source);
}

at::Tensor TreeAttentionImpl::start(const at::Tensor& tokens) const {
  TORCH_CHECK_VALUE(tokens.dim() == 3 && tokens.size(1) == options.tree.tokens,
                    "TreeAttention: expected tokens [B, ", options.tree.tokens, ", E]; got ", tokens.sizes());
  const int64_t spans = tree->graph().nodes - options.tree.tokens;
  return at::cat({tokens, at::zeros({tokens.size(0), spans, tokens.size(2)}, tokens.options())}, 1);
}

at::Tensor TreeAttentionImpl::forward(const at::Tensor& nodes, const std::optional<at::Tensor>& token_mask,
                                      const RandomStream& random) {
  const int64_t heads = options.num_heads;
  const at::Tensor query = split_heads(q_proj->forward(nodes), heads),
                   key = split_heads(k_proj->forward(nodes), heads),
                   value = split_heads(v_proj->forward(nodes), heads);
  EdgeRequest request =
      memory_request("TreeAttention", nodes, nodes, query, key,
                     token_mask ? std::optional(tree->node_mask(*token_mask)) : std::nullopt, random);
  request.is_causal = false;
  const EdgeSet edges = (options.source ? *options.source : *tree).choose(request).edges;
  const at::Tensor scores =
      (functional::edge_scores(query, key, edges) +
       functional::edge_type_scores(query, types.unsqueeze(0), edges, tree->types(edges))) *
      head_scale(query);
  return out_proj->forward(merge_heads(functional::scored_edge_attention(scores, value, edges)));
}

}  // namespace edgewise
