// From a recipe to a model: the one that fits its task, with the attention that the recipe names.
#pragma once

#include <edgewise/edges/sac_edges.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/tasks/task.h>
#include <edgewise/train/recipe.h>

namespace edgewise::train {

// Parameters are drawn from recipe.train.seed; torch's generator is seeded anew.
ModelPtr build_model(const Recipe& recipe, const tasks::Task& task);
// The same for the task that the recipe names, over other data.
ModelPtr build_model(const Recipe& recipe, const data::Dataset& dataset);

// For recipes of texts; `bytes` are its vocabulary, or it has so many tokens.
LanguageModel build_language_model(const Recipe& recipe, std::vector<uint8_t> bytes, int64_t tokens = 0);

// The language model of a checkpoint, which says itself what its tokens mean, or whose run has a reader that
// does: needs no data.
LanguageModel load_language_model(const Recipe& recipe, const std::string& checkpoint);

// The preset of [sbm] with what is set beside it.
SbmEdgesOptions sbm_options(const Recipe& recipe);

// The defaults of SacEdges with what the recipe sets in [sac].
SacEdgesOptions sac_options(const Recipe& recipe);

// Whether the densities of the recipe's model count padding (AttentionKind::counts_padding).
bool density_counts_padding(const Recipe& recipe);

}  // namespace edgewise::train
