#include <edgewise/train/build_model.h>

#include <array>

#include <torch/types.h>
#include <torch/utils.h>

#include <edgewise/data/characters.h>
#include <edgewise/train/attention_kinds.h>

namespace edgewise::train {
namespace {

// The number of sequences per example; a dataset says so only through its batches.
size_t towers(const data::Dataset& dataset) {
  constexpr std::array<int64_t, 1> kFirst = {0};
  return dataset.batch(data::Split::kTrain, kFirst).tokens.size();
}

}  // namespace

bool density_counts_padding(const Recipe& recipe) {
  const AttentionKind& kind = attention_kind(recipe);
  return kind.counts_padding && kind.counts_padding(recipe);
}

ModelPtr build_model(const Recipe& recipe, const data::Dataset& dataset) {
  const ModelRecipe& model = recipe.model;
  if (const auto* text = dynamic_cast<const data::Characters*>(&dataset))
    return build_language_model(recipe, text->bytes()).ptr();
  TORCH_CHECK_VALUE(model.max_length == 0 || model.max_length >= dataset.max_length(),
                    "build_model: expected model.max_length of at least ", dataset.max_length(),
                    ", the longest of ", dataset.name(), "; got ", model.max_length,
                    ". Leave it out to take the dataset's.");
  ClassifierOptions options;
  options.encoder.vocabulary = dataset.vocabulary();
  options.encoder.max_length = model.max_length > 0 ? model.max_length : dataset.max_length();
  options.encoder.layers = model.layers;
  options.encoder.dim = model.dim;
  options.encoder.heads = model.heads;
  options.encoder.hidden = model.hidden;
  options.encoder.dropout = model.dropout;
  options.encoder.attention_dropout = model.attention_dropout;
  options.encoder.token_dropout = model.token_dropout;
  options.encoder.positions = parse_positions(model.positions);
  options.encoder.embedding_std = model.embedding_std;
  const LayerAttention attention = attention_kind(recipe).make(recipe, options.encoder.max_length);
  options.encoder.edges = attention.edges;
  options.encoder.method = attention.method;
  options.encoder.shared_qk = attention.shared_qk;
  options.encoder.in_proj_bias = attention.in_proj_bias;
  options.classes = dataset.classes();
  options.pooling = parse_pooling(model.pooling);

  const bool two_towers = towers(dataset) == 2;
  torch::manual_seed(static_cast<uint64_t>(recipe.train.seed));
  if (dataset.labels_tokens()) return TokenClassifier(options).ptr();
  if (two_towers) return TwoTowerClassifier(options).ptr();
  return SequenceClassifier(options).ptr();
}

}  // namespace edgewise::train
