// Models from recipes and checkpoints.
#include <edgewise/train/build_model.h>

#include <torch/types.h>
#include <torch/utils.h>

#include <edgewise/io/safetensors.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/task_kinds.h>

namespace edgewise::train {
namespace {

// Edges, or nothing for dense attention: what a decoder can have. Recipes with anything else are refused when
// they are read.
EdgeSourceFactory decoder_edges(const Recipe& recipe, DecoderPlace place, int64_t max_length) {
  const Recipe of = recipe_of_place(recipe, place);
  return attention_kind(of).make(of, max_length).edges;
}

// max_length: of the data.
tasks::ModelPlan plan_of(const Recipe& recipe, int64_t max_length) {
  const ModelRecipe& model = recipe.model;
  const int64_t longest = model.max_length > 0 ? model.max_length : max_length;
  const LayerAttention attention = attention_kind(recipe).make(recipe, longest);
  const bool decodes = task_kind(recipe).has_decoder;
  const auto place = [&](DecoderPlace of) {
    return decodes ? decoder_edges(recipe, of, longest) : EdgeSourceFactory();
  };
  tasks::ModelPlan result = {.encoder = {.max_length = model.max_length,
                                         .layers = model.layers,
                                         .dim = model.dim,
                                         .heads = model.heads,
                                         .hidden = model.hidden,
                                         .dropout = model.dropout,
                                         .attention_dropout = model.attention_dropout,
                                         .token_dropout = model.token_dropout,
                                         .positions = parse_positions(model.positions),
                                         .embedding_std = model.embedding_std,
                                         .style = {.norm_first = model.norm_first,
                                                   .activation = parse_activation(model.activation),
                                                   .hidden_dropout = model.hidden_dropout},
                                         .is_causal = model.causal,
                                         .edges = attention.edges,
                                         .method = attention.method,
                                         .shared_qk = attention.shared_qk,
                                         .in_proj_bias = attention.in_proj_bias},
                             .decoder = attention.decoder,
                             .pooling = parse_pooling(model.pooling),
                             .tied = model.tied};
  result.graph.output_heads = recipe.graph.output_heads;
  result.graph.slope = recipe.graph.slope;
  result.graph.skip = parse_graph_skip(recipe.graph.skip);
  result.graph.norm = recipe.graph.norm;
  result.graph.learned_skip = recipe.graph.learned_skip;
  result.graph.scores = parse_graph_scores(recipe.graph.scores);
  const AttentionKind& kind = attention_kind(recipe);
  result.graph.edges_see_heads = !kind.reads("sac") && !kind.reads("indexer");
  result.graph.edges_learn = !kind.is_pattern;
  result.decoder_edges = place(DecoderPlace::kDecoder);
  result.cross_edges = place(DecoderPlace::kCross);
  return result;
}

}  // namespace

bool density_counts_padding(const Recipe& recipe) {
  const AttentionKind& kind = attention_kind(recipe);
  return kind.counts_padding && kind.counts_padding(recipe);
}

ModelPtr build_model(const Recipe& recipe, const tasks::Task& task) {
  const tasks::ModelPlan plan = plan_of(recipe, task.data().max_length());
  torch::manual_seed(static_cast<uint64_t>(recipe.train.seed));
  return task.make_model(plan);
}

ModelPtr build_model(const Recipe& recipe, const data::Dataset& dataset) {
  return build_model(recipe, *task_over(recipe, DatasetPtr(DatasetPtr(), &dataset)));
}

LanguageModel build_language_model(const Recipe& recipe, std::vector<uint8_t> bytes, int64_t tokens) {
  TORCH_CHECK_VALUE(task_kind(recipe).is_causal, "build_language_model: expected the recipe of a text; got ",
                    recipe.data.name);
  tasks::ModelPlan plan = plan_of(recipe, recipe.data.length);
  plan.encoder.max_length = recipe.data.length;
  torch::manual_seed(static_cast<uint64_t>(recipe.train.seed));
  return tasks::make_language_model(plan, std::move(bytes), tokens);
}

LanguageModel load_language_model(const Recipe& recipe, const std::string& checkpoint) {
  const io::TensorFile file = io::load_safetensors(checkpoint);
  const auto found = file.tensors.find("bytes"), table = file.tensors.find("token_embedding.weight");
  const bool has_bytes =
      found != file.tensors.end() && found->second.scalar_type() == at::kByte && found->second.dim() == 1;
  TORCH_CHECK_VALUE(
      has_bytes || (found == file.tensors.end() && table != file.tensors.end() && table->second.dim() == 2),
      "generate: expected the checkpoint of a language model; ", checkpoint,
      " has no vocabulary (tensor 'bytes' or 'token_embedding.weight'). Train one with "
      "recipes/lm/*.toml.");
  std::vector<uint8_t> bytes;
  if (has_bytes) {
    const uint8_t* const first = found->second.const_data_ptr<uint8_t>();
    bytes.assign(first, first + found->second.numel());
  }
  LanguageModel model = build_language_model(recipe, std::move(bytes), has_bytes ? 0 : table->second.size(0));
  load_checkpoint(checkpoint, *model);
  return model;
}

}  // namespace edgewise::train
