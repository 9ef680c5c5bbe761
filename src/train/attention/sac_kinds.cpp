// Edges that an LSTM walks to: [sac], alone or beside a window.
#include <edgewise/edges/patterns.h>
#include <edgewise/train/build_model.h>

#include <sstream>

#include "train/attention/builtin_kinds.h"
#include "train/recipe/override_with.h"

namespace edgewise::train {
namespace {

EdgeSourceFactory sac_edges(const Recipe& recipe) {
  // std::function copies its target: the factory, which remembers the first layer, is shared.
  auto factory = std::make_shared<SacEdgesFactory>(sac_options(recipe));
  return in_unit(recipe, [factory](int64_t layer) { return (*factory)(layer); });
}

std::string walk_causal_refusal(const Recipe& recipe) {
  if (sac_options(recipe).walk == SacWalk::kRooted) return {};
  return "a walk of pairs goes from token to token in any order, so that the edges of a query would depend "
         "on characters after it; it needs sac.walk = rooted";
}

std::string sac_causal_refusal(const Recipe& recipe) {
  const std::string of_walk = walk_causal_refusal(recipe);
  return of_walk.empty() ? squares_causal_refusal(recipe) : of_walk;
}

std::string sac_recording_refusal(const Recipe& recipe) {
  return "attention.kind = " + recipe.attention.kind +
         " learns by rewards and walks that the host looks at in every step, which a graph cannot hold; set "
         "train.cuda_graph = false";
}

std::string sac_description(const Recipe& recipe) {
  std::ostringstream text;
  text << sac_options(recipe);
  return text.str();
}

}  // namespace

SacEdgesOptions sac_options(const Recipe& recipe) {
  const SacRecipe& sac = recipe.sac;
  SacEdgesOptions options(recipe.model.heads, recipe.model.dim);
  override_with(options.alpha, sac.alpha);
  override_with(options.budget, sac.budget);
  override_with(options.node_dim, sac.node_dim);
  override_with(options.walk, sac.walk, parse_sac_walk);
  override_with(options.scorer, sac.scorer, parse_sac_scorer);
  override_with(options.sharing, sac.sharing, parse_sac_sharing);
  override_with(options.self_edges, sac.self_edges, parse_self_edges);
  if (sac.candidate_window) options.candidates = std::make_shared<WindowEdges>(*sac.candidate_window);
  override_with(options.distance, sac.distance, parse_distance_encoding);
  override_with(options.distance_decay, sac.distance_decay);
  override_with(options.test_decoding, sac.test_decoding, parse_walk_decoding);
  override_with(options.beam, sac.beam);
  if (options.walk == SacWalk::kPairs) options.estimator = SacEstimator::kPaired;
  override_with(options.estimator, sac.estimator, parse_sac_estimator);
  override_with(options.probes, sac.probes);
  override_with(options.least_slope, sac.least_slope);
  override_with(options.policy_weight, sac.policy_weight);
  override_with(options.entropy_weight, sac.entropy_weight);
  override_with(options.baseline, sac.baseline, parse_reward_baseline);
  override_with(options.distilled_rows, sac.distilled_rows);
  return options;
}

std::vector<AttentionKind> sac_kinds() {
  return {{.name = "sac",
           .meaning = "edges that an LSTM predicts, one after another",
           .sections = {"sac"},
           .make = [](const Recipe& recipe, int64_t) { return LayerAttention{.edges = sac_edges(recipe)}; },
           .causal_refusal = sac_causal_refusal,
           .recording_refusal = sac_recording_refusal,
           .takes_squares = true,
           .description = sac_description},
          {.name = "window+sac",
           .meaning = "a window, and predicted edges beyond it",
           .sections = {"window", "sac"},
           .make = [](const Recipe& recipe,
                      int64_t) { return LayerAttention{.edges = with_window(recipe, sac_edges(recipe))}; },
           .causal_refusal = walk_causal_refusal,
           .recording_refusal = sac_recording_refusal,
           .takes_squares = true,
           .description = sac_description}};
}

}  // namespace edgewise::train
