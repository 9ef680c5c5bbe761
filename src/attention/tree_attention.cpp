// BP-Transformer: attention over tokens and a binary tree of span nodes.
#include <edgewise/attention/special_cases.h>
#include <edgewise/ops/scored_attention.h>

#include <c10/core/InferenceMode.h>
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

at::Tensor TreeAttentionImpl::attend_edges(const SpecialHeads& heads, const Edges& own) {
  const at::Tensor scores =
      (functional::edge_scores(heads.query, heads.key, own.edges) +
       functional::edge_type_scores(heads.query, types.unsqueeze(0), own.edges, own.types)) *
      head_scale(heads.query);
  return out_proj->forward(merge_heads(functional::scored_edge_attention(scores, heads.value, own.edges)));
}

const TreeAttentionImpl::Edges& TreeAttentionImpl::own_edges(const EdgeRequest& request) {
  // What is made in inference mode, here or later of these edges, cannot serve training.
  if (!own_ || own_->edges.shape() != request.shape() || own_->edges.device() != request.query.device() ||
      own_->types.is_inference() != c10::InferenceMode::is_enabled()) {
    const EdgeSet edges = tree->choose(request).edges;
    own_ = Edges{edges, tree->types(edges)};
  }
  return *own_;
}

at::Tensor TreeAttentionImpl::forward(const at::Tensor& nodes, const std::optional<at::Tensor>& token_mask,
                                      const RandomStream& random) {
  return attend({.x = nodes,
                 .key_mask = token_mask ? std::optional(tree->node_mask(*token_mask)) : std::nullopt,
                 .random = random})
      .output;
}

std::string TreeAttentionImpl::causal_refusal() const {
  return options.tree.is_causal ? std::string()
                                : "its tree is not causal; set the option is_causal of the tree";
}

std::string TreeAttentionImpl::cache_refusal() const {
  return source_cache_refusal(options.source);
}

std::vector<int64_t> TreeAttentionImpl::new_rows(int64_t first, int64_t count) const {
  std::vector<int64_t> rows = CausalAttention::new_rows(first, count);
  const std::vector<int64_t>& sizes = tree->graph().level_sizes;
  int64_t first_node = 0;
  for (size_t level = 1; level < sizes.size(); ++level) {
    first_node += sizes[level - 1];
    // Node q is complete with token (q + 1) 2^level - 1.
    for (int64_t q = first >> level; q < (first + count) >> level; ++q) rows.push_back(first_node + q);
  }
  return rows;
}

// The rows of the graph, for every item and head.
TreeAttentionImpl::Edges TreeAttentionImpl::row_edges(const std::vector<int64_t>& rows,
                                                      const at::Tensor& query) const {
  const TreeGraph& graph = tree->graph();
  const int64_t* const offsets = graph.row_offsets.const_data_ptr<int64_t>();
  const int32_t* const columns = graph.col_indices.const_data_ptr<int32_t>();
  const int64_t* const kinds = graph.types.const_data_ptr<int64_t>();
  const EdgeShape shape{query.size(0), query.size(1), static_cast<int64_t>(rows.size()), graph.nodes};
  std::vector<int64_t> row_offsets = {0}, edge_types;
  std::vector<int32_t> col_indices;
  for (int64_t head = 0; head < shape.batch * shape.heads; ++head) {
    for (const int64_t row : rows) {
      col_indices.insert(col_indices.end(), columns + offsets[row], columns + offsets[row + 1]);
      edge_types.insert(edge_types.end(), kinds + offsets[row], kinds + offsets[row + 1]);
      row_offsets.push_back(static_cast<int64_t>(col_indices.size()));
    }
  }
  return {EdgeSet::from_trusted_csr(shape, torch::tensor(row_offsets, at::kLong),
                                    torch::tensor(col_indices, at::kInt))
              .to(query.device()),
          torch::tensor(edge_types, at::kLong).to(query.device())};
}

AttentionOutput TreeAttentionImpl::attend(const AttentionInput& input) {
  TORCH_CHECK_VALUE(!input.memory.defined(), "TreeAttention: expected no memory; got ", input.memory.sizes());
  SpecialHeads heads = project_heads(input, options.num_heads, q_proj, k_proj, v_proj);
  EdgeChoice choice;
  AttentionOutput result;
  if (input.cache) {
    TORCH_CHECK_VALUE(options.tree.is_causal && !options.source,
                      "TreeAttention: expected a causal tree, and its own edges, with a cache");
    // Rows lie by node, not in the order of time: room for all nodes from the start.
    const auto placed = [&](RowBuffer& buffer, const at::Tensor& rows) {
      if (buffer.size() == 0)
        buffer.append(
            at::zeros({rows.size(0), options.num_heads, tree->graph().nodes, rows.size(3)}, rows.options()));
      at::Tensor all = buffer.rows();
      all.index_copy_(2, torch::tensor(input.rows, at::kLong).to(rows.device()), rows);
      return all;
    };
    heads.key = placed(input.cache->key, heads.key);
    heads.value = placed(input.cache->value, heads.value);
    const Edges own = row_edges(input.rows, heads.query);
    choice.edges = own.edges;
    result.output = attend_edges(heads, own);
  } else {
    EdgeRequest request = special_request("TreeAttention", input, heads);
    request.is_causal = false;  // the tree is
    if (!options.source && !input.key_mask) {
      const Edges& own = own_edges(request);
      choice.edges = own.edges;
      result.output = attend_edges(heads, own);
    } else {
      choice = scored_choice("TreeAttention", options.source ? *options.source : *tree, request);
      // Pairs of nodes that the tree has not have no type, and may look ahead.
      if (options.source)
        choice.edges = choice.edges.kept(choice.edges.contained_in(tree->choose(request).edges));
      result.output = attend_edges(heads, {choice.edges, tree->types(choice.edges)});
    }
  }
  // Beside all pairs of tokens up to the query: what dense attention would compute.
  const int64_t tokens = options.tree.tokens;
  describe_choice(result, choice, static_cast<double>(input.x.size(0) * causal_pairs(tokens, tokens)),
                  input.keep_edges);
  return result;
}

}  // namespace edgewise
