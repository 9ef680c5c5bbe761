// From a recipe to a model: the classifier that fits the dataset, with the edge sources the recipe names.
#pragma once

#include <edgewise/data/dataset.h>
#include <edgewise/edges/sac_edges.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/models/classifier.h>
#include <edgewise/train/recipe.h>

namespace edgewise::train {

// Token labels give a TokenClassifier, two towers a TwoTowerClassifier, else a SequenceClassifier. Parameters
// are drawn from recipe.train.seed; torch's generator is seeded anew.
ClassifierPtr build_model(const Recipe& recipe, const data::Dataset& dataset);

// The preset of the recipe with its overrides.
SbmEdgesOptions sbm_options(const Recipe& recipe);

// The defaults of SacEdges with what the recipe sets in [sac].
SacEdgesOptions sac_options(const Recipe& recipe);

// Whether the densities of the recipe's model count padding: those of SbmEdges alone do, under `published`.
bool density_counts_padding(const Recipe& recipe);

// Empty for kinds without edges.
EdgeSourceFactory edge_source_factory(const Recipe& recipe);

// Empty for dense attention and attention over edges. Layers must be made in order, once: where they share a
// projection the first one owns it.
AttentionMethodFactory attention_method_factory(const Recipe& recipe, int64_t max_length);

}  // namespace edgewise::train
