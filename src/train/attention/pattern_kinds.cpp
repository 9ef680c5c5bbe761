// Dense attention, and edges that nothing learns.
#include <edgewise/edges/grid_edges.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/special_case_edges.h>
#include <edgewise/edges/square_edges.h>

#include "train/attention/builtin_kinds.h"

namespace edgewise::train {
namespace {

std::string nothing(const Recipe&) {
  return {};
}

}  // namespace

EdgeSourcePtr window_of(const Recipe& recipe) {
  EdgeSourcePtr window;
  if (recipe.grid)  // of pixels, in rows and columns
    window = std::make_shared<GridWindowEdges>(*recipe.grid, recipe.window.width, recipe.attention.unit);
  else
    window = std::make_shared<WindowEdges>(recipe.window.width, recipe.attention.unit);
  if (recipe.window.sinks == 0) return window;
  return std::make_shared<UnionEdges>(std::vector<EdgeSourcePtr>{
      window, std::make_shared<SinkEdges>(recipe.window.sinks, recipe.attention.unit)});
}

EdgeSourceFactory with_window(const Recipe& recipe, EdgeSourceFactory learned) {
  return [recipe, learned = std::move(learned)](int64_t layer) -> EdgeSourcePtr {
    return std::make_shared<UnionEdges>(std::vector<EdgeSourcePtr>{window_of(recipe), learned(layer)});
  };
}

EdgeSourceFactory in_unit(const Recipe& recipe, EdgeSourceFactory single) {
  if (recipe.attention.unit == 1) return single;
  return [single = std::move(single)](int64_t layer) -> EdgeSourcePtr {
    return std::make_shared<SquareEdges>(single(layer));
  };
}

std::string squares_causal_refusal(const Recipe& recipe) {
  if (recipe.attention.unit == 1) return {};
  return "in squares it chooses among the groups before a query's own, which must come from elsewhere: use "
         "attention.kind = window+" +
         recipe.attention.kind;
}

Operations edges_alone(const Recipe&, const HeadSize& size) {
  return edge_operations(size.n, size.d, size.density);
}

std::vector<AttentionKind> pattern_kinds() {
  return {{.name = "dense",
           .meaning = "every pair, by torch's own attention",
           .make = [](const Recipe&, int64_t) { return LayerAttention{}; },
           .recording_refusal = nothing,
           .cost = [](const Recipe&, const HeadSize& size) { return dense_operations(size.n, size.d); },
           .ignores_places = true},
          {.name = "full",
           .meaning = "every pair, as edges",
           .make =
               [](const Recipe& recipe, int64_t) {
                 return LayerAttention{.edges = [unit = recipe.attention.unit](int64_t) {
                   return std::make_shared<FullEdges>(unit);
                 }};
               },
           .is_pattern = true,
           .cost = edges_alone,
           .takes_squares = true},
          {.name = "window",
           .meaning = "the neighbours of every query",
           .sections = {"window"},
           .make =
               [](const Recipe& recipe, int64_t) {
                 return LayerAttention{.edges = [recipe](int64_t) { return window_of(recipe); }};
               },
           .is_pattern = true,
           .cost = edges_alone,
           .takes_squares = true},
          {.name = "segments",
           .meaning = "tokens up to the query's, of its segment and a memory before it (Transformer-XL's)",
           .sections = {"segments"},
           .make =
               [](const Recipe& recipe, int64_t) {
                 const SegmentEdgesOptions options{.segment = recipe.segments.length,
                                                   .memory = recipe.segments.memory};
                 return LayerAttention{
                     .edges = [options](int64_t) { return std::make_shared<SegmentEdges>(options); }};
               },
           .is_pattern = true,
           .cost = edges_alone},
          {.name = "random",
           .meaning = "keys drawn uniformly, anew in every step",
           .sections = {"random"},
           .make =
               [](const Recipe& recipe, int64_t) {
                 return LayerAttention{
                     .edges = [alpha = recipe.random.alpha, unit = recipe.attention.unit](int64_t) {
                       return std::make_shared<RandomEdges>(alpha, unit);
                     }};
               },
           .is_pattern = true,
           .cost = edges_alone,
           .takes_squares = true}};
}

}  // namespace edgewise::train
