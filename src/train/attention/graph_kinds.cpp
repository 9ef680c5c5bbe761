// Attention over the edges of an input graph, alone and with others beside them: [graph].
#include <edgewise/edges/graph_edges.h>
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

template <typename Source>
AttentionKind control(const char* name, const char* meaning) {
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
          .over_graph = true};
}

}  // namespace

std::vector<AttentionKind> graph_kinds() {
  return {{.name = "graph",
           .meaning = "the edges of an input graph, and every node itself",
           .sections = {"graph"},
           .make =
               [](const Recipe& recipe, int64_t) {
                 return LayerAttention{.edges = [recipe](int64_t) { return graph_of(recipe); }};
               },
           .is_pattern = true,
           .over_graph = true},
          {.name = "graph+sbm",
           .meaning = "the edges of an input graph, and learned edges beside them",
           .sections = {"graph", "sbm"},
           .make =
               [](const Recipe& recipe, int64_t) {
                 return with_graph(recipe, [recipe](int64_t layer) -> EdgeSourcePtr {
                   SbmEdgesOptions options = sbm_options(recipe);
                   if (layer + 1 == recipe.model.layers) options.num_heads = recipe.graph.output_heads;
                   return SbmEdges(options).ptr();
                 });
               },
           .over_graph = true,
           .variant = [](const Recipe& recipe) { return recipe.sbm.preset; }},
          control<RandomExtraEdges>("graph+random",
                                    "the edges of an input graph, and random ones, anew in every step"),
          control<NearestEdges>("graph+nearest",
                                "the edges of an input graph, and the nodes with the nearest features"),
          control<TwoHopEdges>("graph+two_hop", "the edges of an input graph, and neighbours of neighbours")};
}

}  // namespace edgewise::train
