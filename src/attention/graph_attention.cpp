#include <edgewise/attention/graph_attention.h>

#include <torch/nn/functional.h>
#include <torch/nn/init.h>
#include <torch/types.h>

#include <edgewise/ops/additive_attention.h>

#include <ostream>

#include "graph/repeated_heads.h"

namespace edgewise {
namespace {

// Dropout of sparse features takes numbers of another layer than dropout of weights does.
constexpr uint32_t kFeatureLayer = 1u << 15;

void glorot(const at::Tensor& tensor, int64_t in, int64_t out) {
  const double bound = std::sqrt(6.0 / static_cast<double>(in + out));
  torch::nn::init::uniform_(tensor, -bound, bound);
}

}  // namespace

GraphScores parse_graph_scores(std::string_view name) {
  if (name == "additive") return GraphScores::kAdditive;
  if (name == "dot") return GraphScores::kDot;
  TORCH_CHECK_VALUE(false, "scores: expected additive or dot; got '", name, "'");
}

GraphAttentionImpl::GraphAttentionImpl(GraphAttentionOptions options_) : options(std::move(options_)) {
  TORCH_CHECK_VALUE(options.in_features > 0 && options.head_dim > 0 && options.heads > 0,
                    "GraphAttention: expected positive in_features, head_dim and heads; got ",
                    options.in_features, ", ", options.head_dim, " and ", options.heads);
  TORCH_CHECK_VALUE(options.dropout >= 0 && options.dropout < 1 && options.attention_dropout >= 0 &&
                        options.attention_dropout < 1,
                    "GraphAttention: expected dropout and attention_dropout in [0, 1); got ", options.dropout,
                    " and ", options.attention_dropout);
  const int64_t heads = options.heads, dim = options.head_dim;
  weight = register_parameter("weight", torch::empty({options.in_features, heads * dim}));
  if (options.scores == GraphScores::kDot) {
    score_weight = register_parameter("score_weight", torch::empty({heads, dim, dim}));
  } else {
    query_weight = register_parameter("query_weight", torch::empty({heads, dim}));
    key_weight = register_parameter("key_weight", torch::empty({heads, dim}));
    query_bias = register_parameter("query_bias", torch::empty({heads}));
    key_bias = register_parameter("key_bias", torch::empty({heads}));
  }
  bias = register_parameter("bias", torch::empty({out_features()}));
  if (options.skip && (options.learned_skip || options.in_features != out_features()))
    skip = register_module("skip", torch::nn::Linear(options.in_features, out_features()));
  if (options.source) register_module("edges", options.source);
  if (options.edge_dim > 0)
    edge_weight =
        register_parameter("edge_weight", torch::empty({options.in_features, heads * options.edge_dim}));
  reset_parameters();
}

void GraphAttentionImpl::reset_parameters() {
  torch::NoGradGuard no_grad;
  glorot(weight, options.in_features, options.head_dim);  // of a head
  if (score_weight.defined()) {
    glorot(score_weight, options.head_dim, options.head_dim);
  } else {
    glorot(query_weight, options.head_dim, 1);
    glorot(key_weight, options.head_dim, 1);
    query_bias.zero_(), key_bias.zero_();
  }
  if (edge_weight.defined()) glorot(edge_weight, options.in_features, options.edge_dim);
  bias.zero_();
  if (skip.is_empty()) return;
  glorot(skip->weight, options.in_features, out_features());
  skip->bias.zero_();
}

// z: [N, heads, head_dim].
at::Tensor GraphAttentionImpl::project(const GraphAttentionInput& input) const {
  const int64_t heads = options.heads, dim = options.head_dim;
  const double dropout = is_training() ? options.dropout : 0;
  const at::Tensor per_head = weight.view({options.in_features, heads, dim}).permute({1, 0, 2});  // [H, F, D]
  if (input.features) {
    RandomStream random = input.random;
    random.layer += kFeatureLayer;
    return functional::sparse_product(input.features->rows, input.features->row_values,
                                      input.features->columns, input.features->column_values,
                                      per_head.unsqueeze(0), dropout, random)
        .squeeze(0)
        .permute({1, 0, 2});
  }
  if (dropout == 0 || heads == 1)
    return at::mm(torch::dropout(input.x, dropout, true), weight).view({-1, heads, dim});
  // A copy of x for every head, dropped on its own.
  return at::bmm(torch::dropout(input.x.unsqueeze(0).expand({heads, -1, -1}), dropout, true), per_head)
      .permute({1, 0, 2});
}

// z [N, H, D], the same as nodes [1, H, N, D], and value [1, H, N, D].
functional::LearnedAttention GraphAttentionImpl::attend(const at::Tensor& z, const at::Tensor& nodes,
                                                        const at::Tensor& value, const EdgeChoice& choice,
                                                        const RandomStream& random) const {
  const double dropout = is_training() ? options.attention_dropout : 0;
  if (options.scores == GraphScores::kDot) {
    functional::EdgeAttentionOptions attention;
    attention.dropout_p = dropout, attention.random = random;
    const at::Tensor query = at::matmul(nodes, score_weight), key = nodes.contiguous();
    const bool shared = choice.edges.shape().heads == 1;
    const EdgeSet edges = shared ? graph::repeated_heads(choice.edges, options.heads) : choice.edges;
    if (choice.learner)
      return functional::edge_attention(query, key, value, edges, *choice.learner, attention);
    return {functional::edge_attention(query, key, value, edges, attention), {}};
  }
  const auto score = [&](const at::Tensor& weights, const at::Tensor& biases) {
    return ((z * weights).sum(2) + biases).t().unsqueeze(0);  // [1, H, N]
  };
  functional::AdditiveAttentionOptions attention;
  attention.slope = options.slope;
  attention.dropout_p = dropout, attention.random = random;
  return functional::additive_edge_attention(score(query_weight, query_bias), score(key_weight, key_bias),
                                             value, choice.edges, attention,
                                             choice.learner ? &*choice.learner : nullptr);
}

AttentionOutput GraphAttentionImpl::forward(const GraphAttentionInput& input) {
  const int64_t heads = options.heads;
  TORCH_CHECK_VALUE(input.relations, "GraphAttention: expected the edges of a graph; got none");
  TORCH_CHECK_VALUE(input.features ? input.features->rows.shape().keys == options.in_features
                                   : input.x.dim() == 2 && input.x.size(1) == options.in_features,
                    "GraphAttention: expected x [N, ", options.in_features,
                    "] or as many sparse features; got ",
                    input.features ? c10::str("features of ", to_string(input.features->rows.shape()))
                                   : c10::str(input.x.sizes()));
  const at::Tensor z = project(input);                         // [N, H, D]
  const at::Tensor nodes = z.permute({1, 0, 2}).unsqueeze(0);  // [1, H, N, D]
  const at::Tensor value = torch::dropout(nodes, options.dropout, is_training());

  const bool for_every_head = options.source_learns || options.scores == GraphScores::kDot;
  at::Tensor seen = for_every_head ? nodes : nodes.narrow(1, 0, 1);  // by the source
  if (edge_weight.defined()) {
    TORCH_CHECK_VALUE(!input.features, "GraphAttention: expected x, which edges are chosen by; got features");
    seen = at::mm(input.x, edge_weight).view({1, -1, heads, options.edge_dim}).permute({0, 2, 1, 3});
  }
  EdgeRequest request{seen, seen, std::nullopt, /*is_causal=*/false, input.random};
  request.tokens = input.features ? z.flatten(1).unsqueeze(0) : input.x.unsqueeze(0);
  request.relations = *input.relations;
  request.features = input.node_features;
  EdgeChoice choice;
  if (options.source)
    choice = allowed_choice(*options.source, request);
  else
    choice.edges = input.relations->edges;

  const functional::LearnedAttention learned = attend(z, nodes, value, choice, input.random);
  const at::Tensor rows = learned.output.squeeze(0).permute({1, 0, 2});  // [N, H, D]

  AttentionOutput result;
  result.output = (options.concatenate ? rows.flatten(1)
                   : heads == 1        ? rows.squeeze(1)
                                       : rows.mean(1)) +
                  bias;
  if (options.skip) {
    TORCH_CHECK_VALUE(!input.features, "GraphAttention: expected x to be added to the output; got features");
    result.output = result.output + (skip.is_empty() ? input.x : skip->forward(input.x));
  }
  result.penalty = choice.density_penalty;
  if (choice.learner && !result.penalty.defined()) result.penalty = learned.sampled_density;
  const at::Tensor counts = choice.edges.edges_per_head().select(0, 0).expand({heads});  // [H]
  const EdgeShape shape = request.shape();
  result.density = counts.to(at::kDouble) / std::max(1.0, static_cast<double>(shape.queries * shape.keys));
  result.edge_count = counts.sum();
  result.policy = choice.policy;
  if (!input.keep_edges) return result;
  result.edges = choice.edges;
  result.view.emplace();
  if (choice.learner && choice.learner->query_membership.defined()) {
    result.view->query_membership = choice.learner->query_membership.detach();
    result.view->key_side = choice.learner->key_side.detach();
  }
  return result;
}

}  // namespace edgewise
