// Language models from recipes and checkpoints.
#include <edgewise/attention/special_cases.h>
#include <edgewise/data/characters.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>

#include <torch/types.h>
#include <torch/utils.h>

namespace edgewise::train {
namespace {

// Layers must be made in order: what the published models share, the first one owns.
CausalAttentionFactory causal_attention_factory(const Recipe& recipe) {
  const AttentionRecipe& attention = recipe.attention;
  const int64_t dim = recipe.model.dim, heads = recipe.model.heads, context = recipe.data.length;
  if (attention.kind == "transformer_xl") {
    TransformerXlOptions options{.embed_dim = dim, .num_heads = heads, .memory = attention.memory};
    return [options](int64_t) mutable -> CausalAttentionPtr {
      TransformerXlAttention layer(options);
      options.content_bias = layer->content_bias;
      options.position_bias = layer->position_bias;
      return layer.ptr();
    };
  }
  if (attention.kind == "adaptive_span") {
    AdaptiveSpanOptions options{
        .embed_dim = dim,
        .span = {.num_heads = heads, .limit = attention.span_limit, .ramp = attention.span_ramp}};
    options.memory = attention.memory;
    options.span_weight = attention.span_weight;
    return [options](int64_t) mutable -> CausalAttentionPtr {
      AdaptiveSpanAttention layer(options);
      options.positions = layer->positions;
      return layer.ptr();
    };
  }
  if (attention.kind == "tree") {
    const TreeAttentionOptions options{
        .embed_dim = dim,
        .num_heads = heads,
        .tree = {
            .tokens = context, .step = attention.tree_step, .is_causal = true, .clip = attention.tree_clip}};
    return [options](int64_t) -> CausalAttentionPtr { return TreeAttention(options).ptr(); };
  }
  MultiheadEdgeAttentionOptions options(dim, heads);
  options.dropout_p = recipe.model.attention_dropout;
  options.is_causal = true;
  return [options, edges = edge_source_factory(recipe)](int64_t layer) -> CausalAttentionPtr {
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
  options.norm = model.norm;
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
