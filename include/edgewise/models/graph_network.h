// GraphNetwork: labels of a graph's nodes by layers of GraphAttention.
//
//   x = ELU(layer(x)) for all layers but the last, whose heads are averaged into logits
#pragma once

#include <edgewise/attention/graph_attention.h>
#include <edgewise/models/encoder.h>
#include <edgewise/models/model.h>

#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <string_view>
#include <vector>

namespace edgewise {

// Which layers add their input to their output: none, those between the first and the last (as GAT's authors
// have it for PPI), or all.
enum class GraphSkip { kNone, kHidden, kAll };
GraphSkip parse_graph_skip(std::string_view name);  // "none" | "hidden" | "all"

struct GraphNetworkOptions {
  int64_t features = 0;  // F
  int64_t classes = 0;
  int64_t layers = 2;
  int64_t dim = 64;  // of a layer's output, over all heads
  int64_t heads = 8;
  int64_t output_heads = 1;
  double dropout = 0.6;
  double attention_dropout = 0.6;
  double slope = 0.2;
  GraphSkip skip = GraphSkip::kNone;
  bool learned_skip = false;  // through a layer also where the sizes agree
  GraphScores scores = GraphScores::kAdditive;
  bool norm = false;  // LayerNorm before every layer but the first; a skip adds what it gives
  EdgeSourceFactory edges;
  bool edges_learn = false;  // the sources do
  // They look at heads: then they see dim / heads numbers a head in every layer. Else at tokens, of width
  // dim.
  bool edges_see_heads = true;
};

class GraphNetworkImpl : public Model {
 public:
  explicit GraphNetworkImpl(GraphNetworkOptions options);

  // Of one graph: logits [1, N, classes].
  ModelOutput forward(const ModelInput& input) override;

  GraphNetworkOptions options;
  std::vector<GraphAttention> layers;
  std::vector<torch::nn::LayerNorm> norms;  // empty without
};
TORCH_MODULE(GraphNetwork);

}  // namespace edgewise
