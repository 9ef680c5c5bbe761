// Attention over the edges of an input graph, alone and with others beside them: [graph].
#include <edgewise/edges/graph_edges.h>
#include <edgewise/edges/indexer_edges.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/train/build_model.h>

#include "train/attention/builtin_kinds.h"

namespace edgewise::train {
namespace {

EdgeSourcePtr graph_of(const Recipe& recipe) {
  return std::make_shared<GraphEdges>(recipe.graph.drop_edges);
}

// The graph's edges, united with those that `extra` makes for a layer.
template <typename Extra>
LayerAttention with_graph(const Recipe& recipe, const Extra& extra) {
  return {.edges = [recipe, extra](int64_t layer) -> EdgeSourcePtr {
    return std::make_shared<UnionEdges>(std::vector<EdgeSourcePtr>{graph_of(recipe), extra(layer)});
  }};
}

int64_t heads_of(const Recipe& recipe, int64_t layer) {
  return layer + 1 == recipe.model.layers ? recipe.graph.output_heads : recipe.model.heads;
}

// The pairs that the graph has not, as far as graph.hops.
EdgeSourcePtr candidates_of(const Recipe& recipe) {
  return std::make_shared<BeyondGraph>(recipe.graph.hops);
}

// graph.extra edges a node are expected, whatever the learner does: the controls have as many.
EdgeSourcePtr sbm_beside(const Recipe& recipe, int64_t layer) {
  SbmEdgesOptions options = sbm_options(recipe);
  options.num_heads = heads_of(recipe, layer);
  options.edges_per_row = static_cast<double>(recipe.graph.extra);
  if (recipe.graph.hops > 0) options.candidates = candidates_of(recipe);
  return SbmEdges(options).ptr();
}

// Numbers of nodes are arbitrary: a distance of tokens says nothing.
EdgeSourcePtr sac_beside(const Recipe& recipe, int64_t layer) {
  SacEdgesOptions options = sac_options(recipe);
  TORCH_CHECK_VALUE(
      options.sharing != SacSharing::kAllLayers,
      "graph+sac: expected sac.sharing = per_layer or per_head; the last layer has heads of its "
      "own; found all_layers");
  options.num_heads = heads_of(recipe, layer);
  options.alpha = recipe.graph.extra, options.budget = 0;
  options.distance = DistanceEncoding::kNone;
  options.candidates = candidates_of(recipe);
  return SacEdges(options).ptr();
}

EdgeSourcePtr indexer_beside(const Recipe& recipe, int64_t layer) {
  IndexerEdgesOptions options = indexer_options(recipe);
  options.num_heads = heads_of(recipe, layer);
  options.alpha = recipe.graph.extra;
  options.candidates = candidates_of(recipe);
  return IndexerEdges(options).ptr();
}

using Beside = EdgeSourcePtr (*)(const Recipe&, int64_t layer);

AttentionKind learned(const char* name, const char* section, const char* meaning, Beside beside) {
  return {.name = name,
          .meaning = meaning,
          .sections = {"graph", section},
          .make =
              [beside](const Recipe& recipe, int64_t) {
                return with_graph(recipe, [recipe, beside](int64_t layer) { return beside(recipe, layer); });
              },
          .over_graph = true,
          .joins_graphs = [](const Recipe& recipe) { return recipe.graph.hops == 0; }};
}

template <typename Source>
AttentionKind control(const char* name, const char* meaning, bool joins_graphs) {
  return {.name = name,
          .meaning = meaning,
          .sections = {"graph"},
          .make =
              [](const Recipe& recipe, int64_t) {
                return with_graph(recipe, [count = recipe.graph.extra](int64_t) -> EdgeSourcePtr {
                  return std::make_shared<Source>(count);
                });
              },
          .is_pattern = true,
          .over_graph = true,
          .joins_graphs = [joins_graphs](const Recipe&) { return joins_graphs; }};
}

}  // namespace

std::vector<AttentionKind> graph_kinds() {
  AttentionKind graph_sbm =
      learned("graph+sbm", "sbm", "the edges of an input graph, and as many a node as are asked for, learned",
              sbm_beside);
  graph_sbm.variant = [](const Recipe& recipe) { return recipe.sbm.preset; };
  return {{.name = "graph",
           .meaning = "the edges of an input graph, and every node itself",
           .sections = {"graph"},
           .make =
               [](const Recipe& recipe, int64_t) {
                 return LayerAttention{.edges = [recipe](int64_t) { return graph_of(recipe); }};
               },
           .is_pattern = true,
           .over_graph = true},
          graph_sbm,
          learned("graph+sac", "sac",
                  "the edges of an input graph, and those that an LSTM predicts beside them", sac_beside),
          learned("graph+indexer", "indexer",
                  "the edges of an input graph, and the best other nodes by a cheap score of their own",
                  indexer_beside),
          control<RandomExtraEdges>("graph+random",
                                    "the edges of an input graph, and random ones, anew in every step", true),
          control<NearestEdges>("graph+nearest",
                                "the edges of an input graph, and the nodes with the nearest features", true),
          control<TwoHopEdges>("graph+two_hop", "the edges of an input graph, and neighbours of neighbours",
                               false)};
}

}  // namespace edgewise::train
