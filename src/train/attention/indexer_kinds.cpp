// The best keys by a score of their own: [indexer], alone or beside a window.
#include <edgewise/edges/indexer_edges.h>

#include <sstream>

#include "train/attention/builtin_kinds.h"
#include "train/recipe/override_with.h"

namespace edgewise::train {
namespace {

EdgeSourceFactory indexer_edges(const Recipe& recipe) {
  return in_unit(recipe, [options = indexer_options(recipe)](int64_t) -> EdgeSourcePtr {
    return IndexerEdges(options).ptr();
  });
}

std::string indexer_recording_refusal(const Recipe& recipe) {
  return "attention.kind = " + recipe.attention.kind +
         " makes lists of edges whose length the host waits for, which a graph cannot hold; set "
         "train.cuda_graph = false";
}

std::string indexer_description(const Recipe& recipe) {
  std::ostringstream text;
  text << indexer_options(recipe);
  return text.str();
}

}  // namespace

IndexerEdgesOptions indexer_options(const Recipe& recipe) {
  const IndexerRecipe& indexer = recipe.indexer;
  IndexerEdgesOptions options(recipe.model.heads, recipe.model.dim);
  override_with(options.alpha, indexer.alpha);
  override_with(options.index_heads, indexer.heads);
  override_with(options.index_dim, indexer.dim);
  override_with(options.sharing, indexer.sharing, parse_indexer_sharing);
  override_with(options.temperature, indexer.temperature);
  override_with(options.test_decoding, indexer.test_decoding, parse_policy_decoding);
  override_with(options.estimator, indexer.estimator, parse_indexer_estimator);
  override_with(options.probes, indexer.probes);
  override_with(options.least_slope, indexer.least_slope);
  override_with(options.policy_weight, indexer.policy_weight);
  override_with(options.entropy_weight, indexer.entropy_weight);
  return options;
}

std::vector<AttentionKind> indexer_kinds() {
  return {
      {.name = "indexer",
       .meaning = "the best keys by a cheap score of their own, in training drawn by it",
       .sections = {"indexer"},
       .make = [](const Recipe& recipe, int64_t) { return LayerAttention{.edges = indexer_edges(recipe)}; },
       .causal_refusal = squares_causal_refusal,
       .recording_refusal = indexer_recording_refusal,
       .takes_squares = true,
       .description = indexer_description},
      {.name = "window+indexer",
       .meaning = "a window, and the best keys beyond it",
       .sections = {"window", "indexer"},
       .make = [](const Recipe& recipe,
                  int64_t) { return LayerAttention{.edges = with_window(recipe, indexer_edges(recipe))}; },
       .recording_refusal = indexer_recording_refusal,
       .takes_squares = true,
       .description = indexer_description}};
}

}  // namespace edgewise::train
