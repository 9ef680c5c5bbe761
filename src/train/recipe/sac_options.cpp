// From the [sac] section of a recipe to the options of SacEdges.
#include <edgewise/edges/patterns.h>
#include <edgewise/train/build_model.h>

#include "train/recipe/override_with.h"

namespace edgewise::train {

SacEdgesOptions sac_options(const Recipe& recipe) {
  const SacRecipe& sac = recipe.sac;
  SacEdgesOptions options(recipe.model.heads, recipe.model.dim);
  override_with(options.alpha, sac.alpha);
  override_with(options.budget, sac.budget);
  override_with(options.node_dim, sac.node_dim);
  override_with(options.walk, sac.walk, parse_sac_walk);
  override_with(options.scorer, sac.scorer, parse_sac_scorer);
  override_with(options.destinations, sac.destinations, parse_sac_destinations);
  override_with(options.block_size, sac.block_size);
  override_with(options.sharing, sac.sharing, parse_sac_sharing);
  override_with(options.self_edges, sac.self_edges, parse_self_edges);
  override_with(options.duplicates, sac.duplicates);
  if (sac.candidate_window) options.candidates = std::make_shared<WindowEdges>(*sac.candidate_window);
  override_with(options.distance, sac.distance, parse_distance_encoding);
  override_with(options.distance_buckets, sac.distance_buckets);
  override_with(options.max_distance, sac.max_distance);
  override_with(options.distance_decay, sac.distance_decay);
  override_with(options.train_decoding, sac.train_decoding, parse_walk_decoding);
  override_with(options.test_decoding, sac.test_decoding, parse_walk_decoding);
  override_with(options.beam, sac.beam);
  override_with(options.detach_inputs, sac.detach_inputs);
  override_with(options.estimator, sac.estimator, parse_sac_estimator);
  override_with(options.credit_form, sac.credit_form, parse_effect_rule);
  override_with(options.policy_weight, sac.policy_weight);
  override_with(options.entropy_weight, sac.entropy_weight);
  override_with(options.baseline, sac.baseline, parse_reward_baseline);
  override_with(options.baseline_decay, sac.baseline_decay);
  override_with(options.normalize_rewards, sac.normalize_rewards);
  override_with(options.distilled_rows, sac.distilled_rows);
  return options;
}

}  // namespace edgewise::train
