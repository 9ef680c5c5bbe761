#include <edgewise/models/graph_network.h>

#include <torch/nn/functional.h>
#include <torch/types.h>

#include <edgewise/models/input_graph.h>

namespace edgewise {

GraphSkip parse_graph_skip(std::string_view name) {
  if (name == "none") return GraphSkip::kNone;
  if (name == "hidden") return GraphSkip::kHidden;
  if (name == "all") return GraphSkip::kAll;
  TORCH_CHECK_VALUE(false, "skip: expected none, hidden or all; got '", name, "'");
}

GraphNetworkImpl::GraphNetworkImpl(GraphNetworkOptions options_) : options(std::move(options_)) {
  TORCH_CHECK_VALUE(options.features > 0 && options.classes > 0 && options.layers > 0,
                    "GraphNetwork: expected features, classes and layers; got ", options.features, ", ",
                    options.classes, " and ", options.layers);
  TORCH_CHECK_VALUE(options.heads > 0 && options.dim % options.heads == 0 && options.output_heads > 0,
                    "GraphNetwork: expected heads to divide dim, and output heads; got ", options.heads, ", ",
                    options.dim, " and ", options.output_heads);
  auto list = register_module("layers", torch::nn::ModuleList());
  for (int64_t index = 0; index < options.layers; ++index) {
    const bool is_first = index == 0, is_last = index + 1 == options.layers;
    GraphAttentionOptions layer;
    layer.in_features = is_first ? options.features : options.dim;
    layer.heads = is_last ? options.output_heads : options.heads;
    layer.head_dim = is_last ? options.classes : options.dim / options.heads;
    layer.concatenate = !is_last;
    layer.dropout = options.dropout;
    layer.attention_dropout = options.attention_dropout;
    layer.slope = options.slope;
    // Sparse features are as wide as a dictionary; nobody adds them to a layer's output.
    layer.skip =
        !is_first && (options.skip == GraphSkip::kAll || (options.skip == GraphSkip::kHidden && !is_last));
    layer.learned_skip = options.learned_skip;
    layer.scores = options.scores;
    if (options.edges) layer.source = options.edges(index);
    layer.source_learns = options.edges_learn;
    if (options.edges_learn && layer.head_dim != options.dim / options.heads) {
      TORCH_CHECK_VALUE(!is_first, "GraphNetwork: expected at least two layers with edges that are learned");
      if (options.edges_see_heads) layer.edge_dim = options.dim / options.heads;
    }
    layers.emplace_back(std::move(layer));
    list->push_back(layers.back());
    if (!options.norm || is_first) continue;
    norms.emplace_back(torch::nn::LayerNormOptions({options.dim}));
    register_module("norm" + std::to_string(index), norms.back());
  }
}

ModelOutput GraphNetworkImpl::forward(const ModelInput& input) {
  const Tower& tower = input.batch.towers.at(0);
  TORCH_CHECK_VALUE(tower.graph, "GraphNetwork: expected a batch with a graph; got none");
  const InputGraph::Parts& graph =
      tower.graph->on(tower.tokens.device(), layers.front()->weight.scalar_type());
  ModelOutput result;
  GraphAttentionInput layer;
  layer.features = layer.node_features = &graph.features;
  layer.relations = &graph.relations;
  layer.random = input.random;
  layer.keep_edges = input.keep_edges;
  for (size_t index = 0; index < layers.size(); ++index, ++layer.random.layer) {
    if (index > 0 && options.norm) layer.x = norms[index - 1]->forward(layer.x);
    AttentionOutput attended = layers[index]->forward(layer);
    if (attended.density.size(0) != options.heads)  // of other heads than the layers before
      attended.density = attended.density.mean().expand({options.heads});
    at::Tensor x = result.add(std::move(attended));
    if (index + 1 < layers.size()) x = torch::elu(x);
    if (input.watch) input.watch("layers." + std::to_string(index), x);
    layer.x = x;
    layer.features = nullptr;
  }
  result.finish();
  result.logits = layer.x.unsqueeze(0);
  if (result.penalty.defined()) result.tower_penalties.push_back(result.penalty);
  return result;
}

}  // namespace edgewise
