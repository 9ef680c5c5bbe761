// GraphAttention: a layer of a graph attention network (GAT, arXiv 1710.10903) over the edges that a source
// chooses, or that are given.
//
//   z = dropout(x) W;   s_ij = LeakyReLU(a_l.z_i + b_l + a_r.z_j + b_r), or z_i M z_j / sqrt(D);
//   w_ij = softmax over j of s_ij
//   o_i = sum_j dropout(w_ij) dropout(z_j) + b,   heads side by side, or their mean
//
// As in the authors' code, dropout of x is drawn anew for every head, z goes into the scores before its own
// dropout, and scores have biases.
#pragma once

#include <edgewise/attention/self_attention.h>
#include <edgewise/graph/sparse_matrix.h>
#include <edgewise/ops/functional.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <string_view>

namespace edgewise {

// Of an edge: kAdditive, LeakyReLU of two numbers; kDot, a product of both nodes with a matrix between them.
enum class GraphScores { kAdditive, kDot };
GraphScores parse_graph_scores(std::string_view name);  // "additive" | "dot"

struct GraphAttentionOptions {
  int64_t in_features = 0;
  int64_t head_dim = 8;
  int64_t heads = 8;
  bool concatenate = true;  // heads side by side [N, heads * head_dim], or their mean [N, head_dim]
  double dropout = 0;       // of x and of z
  double attention_dropout = 0;
  double slope = 0.2;  // of LeakyReLU below 0
  bool skip = false;   // x is added to the output: as it is where the sizes agree, else through a layer
  bool learned_skip = false;  // ... always through a layer
  GraphScores scores = GraphScores::kAdditive;
  EdgeSourcePtr source;  // null: the graph's own edges and a loop at every node
  // Whether the source learns: then it chooses for every head, from z; else once for all heads.
  bool source_learns = false;
  // Width of a projection of x, a head each, that the source sees in place of z; 0 = z.
  int64_t edge_dim = 0;
};

struct GraphAttentionInput {
  at::Tensor x;                                 // [N, in_features]; undefined where `features` are read
  const SparseMatrix* features = nullptr;       // [N, in_features], in place of x
  const EdgeRelations* relations = nullptr;     // of the input graph
  const SparseMatrix* node_features = nullptr;  // of the input graph, for sources that look at them
  RandomStream random = {};
  bool keep_edges = false;
};

class GraphAttentionImpl : public torch::nn::Module {
 public:
  explicit GraphAttentionImpl(GraphAttentionOptions options);

  AttentionOutput forward(const GraphAttentionInput& input);  // output [N, out_features()]
  int64_t out_features() const { return options.head_dim * (options.concatenate ? options.heads : 1); }
  void reset_parameters();

  GraphAttentionOptions options;
  at::Tensor weight;                    // [in_features, heads * head_dim]
  at::Tensor query_weight, key_weight;  // a_l, a_r: [heads, head_dim]
  at::Tensor query_bias, key_bias;      // b_l, b_r: [heads]
  at::Tensor score_weight;              // M: [heads, head_dim, head_dim], in place of the four above
  at::Tensor edge_weight;               // [in_features, heads * edge_dim]; undefined without
  at::Tensor bias;                      // [out_features()]
  torch::nn::Linear skip{nullptr};      // empty where x is added as it is

 private:
  functional::LearnedAttention attend(const at::Tensor& z, const at::Tensor& nodes, const at::Tensor& value,
                                      const EdgeChoice& choice, const RandomStream& random) const;
  at::Tensor project(const GraphAttentionInput& input) const;
};
TORCH_MODULE(GraphAttention);

}  // namespace edgewise
