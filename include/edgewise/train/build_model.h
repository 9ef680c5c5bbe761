// From a recipe to a model: the classifier or language model that fits the dataset, with the edge sources the
// recipe names.
#pragma once

#include <edgewise/data/dataset.h>
#include <edgewise/edges/sac_edges.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/models/classifier.h>
#include <edgewise/models/language_model.h>
#include <edgewise/train/recipe.h>

namespace edgewise::train {

// A text gives a LanguageModel, token labels a TokenClassifier, two towers a TwoTowerClassifier, else a
// SequenceClassifier. Parameters are drawn from recipe.train.seed; torch's generator is seeded anew.
ModelPtr build_model(const Recipe& recipe, const data::Dataset& dataset);

// For data.name = characters; `bytes` are its vocabulary.
LanguageModel build_language_model(const Recipe& recipe, std::vector<uint8_t> bytes);

// The language model of a checkpoint, which says itself what its tokens mean: needs no data.
LanguageModel load_language_model(const Recipe& recipe, const std::string& checkpoint);

// Throws unless the model's tokens mean the same bytes as the dataset's.
void check_vocabulary(const Model& model, const data::Dataset& dataset);

// The preset of [sbm] with what is set beside it.
SbmEdgesOptions sbm_options(const Recipe& recipe);

// The defaults of SacEdges with what the recipe sets in [sac].
SacEdgesOptions sac_options(const Recipe& recipe);

// Whether the densities of the recipe's model count padding (AttentionKind::counts_padding).
bool density_counts_padding(const Recipe& recipe);

}  // namespace edgewise::train
