// Language models from recipes and checkpoints.
#include <edgewise/attention/multihead_attention.h>
#include <edgewise/data/characters.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>

#include <torch/types.h>
#include <torch/utils.h>

namespace edgewise::train {
namespace {

CausalAttentionFactory causal_attention_factory(const Recipe& recipe) {
  const LayerAttention made = attention_kind(recipe).make(recipe, recipe.data.length);
  if (made.decoder) return made.decoder;
  MultiheadEdgeAttentionOptions options(recipe.model.dim, recipe.model.heads);
  options.dropout_p = recipe.model.attention_dropout;
  options.is_causal = true;
  return [options, edges = made.edges](int64_t layer) -> CausalAttentionPtr {
    MultiheadEdgeAttentionOptions own = options;
    if (edges) own.source = edges(layer);
    return MultiheadEdgeAttention(own).ptr();
  };
}

}  // namespace

LanguageModel build_language_model(const Recipe& recipe, std::vector<uint8_t> bytes) {
  const ModelRecipe& model = recipe.model;
  TORCH_CHECK_VALUE(recipe.data.name == "characters",
                    "build_language_model: expected a recipe with data.name = characters; got ",
                    recipe.data.name);
  LanguageModelOptions options;
  options.bytes = std::move(bytes);
  options.context = recipe.data.length;
  options.layers = model.layers;
  options.dim = model.dim;
  options.hidden = model.hidden;
  options.dropout = model.dropout;
  options.positions = parse_positions(model.positions);
  options.embedding_std = model.embedding_std;
  options.tied = model.tied;
  options.attention = causal_attention_factory(recipe);
  torch::manual_seed(static_cast<uint64_t>(recipe.train.seed));
  return LanguageModel(options);
}

LanguageModel load_language_model(const Recipe& recipe, const std::string& checkpoint) {
  const io::TensorFile file = io::load_safetensors(checkpoint);
  const auto found = file.tensors.find("bytes");
  TORCH_CHECK_VALUE(
      found != file.tensors.end() && found->second.scalar_type() == at::kByte && found->second.dim() == 1,
      "generate: expected the checkpoint of a language model; ", checkpoint,
      " has no vocabulary (tensor 'bytes'). Train one with recipes/lm/*.toml.");
  const uint8_t* const bytes = found->second.const_data_ptr<uint8_t>();
  LanguageModel model = build_language_model(recipe, {bytes, bytes + found->second.numel()});
  load_checkpoint(checkpoint, *model);
  return model;
}

void check_vocabulary(const Model& model, const data::Dataset& dataset) {
  const auto* language = dynamic_cast<const LanguageModelImpl*>(&model);
  const auto* text = dynamic_cast<const data::Characters*>(&dataset);
  if (!language || !text) return;
  const at::Tensor bytes = language->bytes.cpu();
  const bool same = bytes.numel() == text->vocabulary() &&
                    std::equal(text->bytes().begin(), text->bytes().end(), bytes.const_data_ptr<uint8_t>());
  TORCH_CHECK_VALUE(same, "expected a text with the bytes that the model was trained on; ", text->name(),
                    " has others. Set data.path to the text of the run, or to one with the same characters.");
}

}  // namespace edgewise::train
