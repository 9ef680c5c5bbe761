#include <edgewise/models/encoder.h>

#include <cmath>

#include <torch/nn/functional.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>

#include "models/layers.h"

namespace edgewise {
namespace {

void check_input(const EncoderOptions& options, const Tower& tower) {
  const at::Tensor &tokens = tower.tokens, &features = tower.features;
  TORCH_CHECK_VALUE(options.vocabulary > 0 ? tokens.defined() && tokens.dim() == 2 : !tokens.defined(),
                    "Encoder: expected ",
                    options.vocabulary > 0 ? "tokens [B, N]" : "features alone, without a vocabulary",
                    "; got ", tokens.defined() ? c10::str(tokens.sizes()) : "an undefined tensor");
  TORCH_CHECK_VALUE(
      options.features > 0 ? features.defined() && features.dim() == 3 && features.size(2) == options.features
                           : !features.defined(),
      "Encoder: expected ",
      options.features > 0 ? c10::str("features [B, N, ", options.features, "]") : "no features", "; got ",
      features.defined() ? c10::str(features.sizes()) : "none");
  TORCH_CHECK_VALUE(!tokens.defined() || !features.defined() ||
                        (features.size(0) == tokens.size(0) && features.size(1) == tokens.size(1)),
                    "Encoder: expected features of every token, ", tokens.sizes(), "; got ",
                    features.sizes());
  TORCH_CHECK_VALUE(tower.length() <= options.max_length,
                    "Encoder: expected at most max_length = ", options.max_length, " tokens; got ",
                    tower.length(), ". Cut the sequences or build the model with a larger max_length.");
  TORCH_CHECK_VALUE(
      !tower.positions.defined() ||
          (tower.positions.dim() == 2 && tower.positions.size(0) == tower.items() &&
           tower.positions.size(1) == tower.length() && tower.positions.scalar_type() == at::kLong),
      "Encoder: expected positions as int64 with the sizes of the tokens, [", tower.items(), ", ",
      tower.length(), "]; got ", tower.positions.scalar_type(), " of ", tower.positions.sizes());
  TORCH_CHECK_VALUE(!tower.positions.defined() || options.positions != Positions::kRotary,
                    "Encoder: expected tokens that stand side by side with rotary positions; got places of "
                    "their own. Use learned positions.");
  if (!tokens.defined()) return;
  TORCH_CHECK_TYPE(tokens.scalar_type() == at::kLong, "Encoder: expected int64 tokens; got ",
                   tokens.scalar_type());
  // On a GPU the check would wait for the device; there the embedding itself asserts.
  if (tokens.is_cpu() && tokens.numel() > 0) {
    const auto [lowest, highest] = tokens.aminmax();
    TORCH_CHECK_INDEX(lowest.item<int64_t>() >= 0 && highest.item<int64_t>() < options.vocabulary,
                      "Encoder: expected token ids in [0, ", options.vocabulary, "); got ids from ",
                      lowest.item<int64_t>(), " to ", highest.item<int64_t>(),
                      ". Check that the data and the model share one vocabulary.");
  }
}

SelfAttentionPtr make_attention(const EncoderOptions& options, int64_t layer) {
  MultiheadEdgeAttentionOptions attention(options.dim, options.heads);
  attention.dropout_p = options.attention_dropout;
  attention.is_causal = options.is_causal;
  if (options.edges) attention.source = options.edges(layer);
  if (options.method) attention.method = options.method(layer);
  attention.shared_qk = options.shared_qk;
  attention.in_proj_bias = options.in_proj_bias;
  attention.rotary = options.positions == Positions::kRotary;
  return MultiheadEdgeAttention(std::move(attention)).ptr();
}

}  // namespace

Positions parse_positions(std::string_view name) {
  for (const Positions positions :
       {Positions::kLearned, Positions::kNone, Positions::kSinusoidal, Positions::kRotary})
    if (name == to_string(positions)) return positions;
  TORCH_CHECK_VALUE(false, "positions: expected learned, none, sinusoidal or rotary; got '", name, "'");
}

std::string_view to_string(Positions positions) {
  switch (positions) {
    case Positions::kLearned:
      return "learned";
    case Positions::kSinusoidal:
      return "sinusoidal";
    case Positions::kRotary:
      return "rotary";
    default:
      return "none";
  }
}

at::Tensor sinusoids(int64_t length, int64_t dim) {
  TORCH_CHECK_VALUE(dim >= 4 && dim % 2 == 0,
                    "sinusoids: expected an even width of at least 4, half of it sines; got ", dim);
  constexpr double kFirst = 2;  // as fairseq counts, behind the padding's place
  const at::Tensor rate =
      at::exp(at::arange(dim / 2, at::kDouble) * (-std::log(10000.0) / static_cast<double>(dim / 2 - 1)));
  const at::Tensor angle = (at::arange(length, at::kDouble) + kFirst).unsqueeze(1) * rate;
  return at::cat({angle.sin(), angle.cos()}, 1).to(at::kFloat);
}

EncoderImpl::EncoderImpl(EncoderOptions options_) : options(std::move(options_)) {
  TORCH_CHECK_VALUE(options.vocabulary >= 0 && options.features >= 0 &&
                        options.vocabulary + options.features > 0 && options.max_length > 0,
                    "Encoder: expected a positive vocabulary, or features, and max_length; got ",
                    options.vocabulary, ", ", options.features, " and ", options.max_length);
  TORCH_CHECK_VALUE(options.layers > 0, "Encoder: expected at least one layer; got ", options.layers);
  TORCH_CHECK_VALUE(options.token_dropout >= 0 && options.token_dropout < 1,
                    "Encoder: expected token_dropout in [0, 1); got ", options.token_dropout);
  if (options.vocabulary > 0) {
    token_embedding =
        register_module("token_embedding", torch::nn::Embedding(options.vocabulary, options.dim));
    torch::nn::init::normal_(token_embedding->weight, 0, options.embedding_std);
  }
  if (options.positions == Positions::kLearned) {
    position_embedding =
        register_module("position_embedding", torch::nn::Embedding(options.max_length, options.dim));
    torch::nn::init::normal_(position_embedding->weight, 0, options.embedding_std);
  }
  if (options.positions == Positions::kSinusoidal)
    places = register_buffer("places", sinusoids(options.max_length, options.dim));
  if (options.features > 0)
    feature_projection =
        register_module("feature_projection", torch::nn::Linear(options.features, options.dim));
  auto list = register_module("layers", torch::nn::ModuleList());
  const BlockOptions block{
      .dim = options.dim, .hidden = options.hidden, .dropout = options.dropout, .style = options.style};
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    layers.emplace_back(block, make_attention(options, layer));
    list->push_back(layers.back());
  }
  if (options.style.norm && options.style.norm_first) norm = register_module("norm", make_norm(options.dim));
}

at::Tensor EncoderImpl::embed(const Tower& tower) {
  const at::Tensor table = position_embedding.is_empty() ? places : position_embedding->weight;
  const bool has_places = table.defined();
  at::Tensor tokens = tower.tokens;
  if (tokens.defined() && is_training() && options.token_dropout > 0)
    tokens = tokens.masked_fill(
        at::rand(tokens.sizes(), tokens.options().dtype(at::kFloat)) < options.token_dropout, 0);
  const auto embedded = [&](double dropout) {
    const at::Tensor& weight = token_embedding->weight;
    return ops::embed({.tokens = tokens,
                       .table = options.embedding_scale == 1 ? weight : weight * options.embedding_scale,
                       .positions = has_places ? tower.positions : at::Tensor(),
                       .places = table},
                      dropout, is_training());
  };
  if (feature_projection.is_empty()) return embedded(options.dropout);
  at::Tensor x = feature_projection->forward(tower.features);
  if (tokens.defined())
    x = x + embedded(0);
  else if (has_places)
    x = x + (tower.positions.defined() ? at::embedding(table, tower.positions)
                                       : table.slice(0, 0, tower.length()));
  return torch::dropout(x, options.dropout, is_training());
}

EncoderOutput EncoderImpl::forward(const EncoderInput& input) {
  const Tower& tower = input.tower;
  check_input(options, tower);
  AttentionInput layer{.x = embed(tower),
                       .key_mask = tower.key_mask(),
                       .random = input.random,
                       .keep_edges = input.keep_edges,
                       .relations = relations_of(tower)};
  if (input.watch) input.watch("embedding", layer.x);
  EncoderOutput result;
  for (size_t index = 0; index < layers.size(); ++index, ++layer.random.layer)
    layer.x = result.add(layers[index]->forward(layer, input.watch, "layers." + std::to_string(index) + "."));
  result.finish();
  // Whatever padding computed, even infinity, becomes 0.
  result.states = tower.mask.defined() ? normed_or_zero(norm, layer.x, tower.mask) : normed(norm, layer.x);
  if (input.watch) input.watch("norm", result.states);
  return result;
}

}  // namespace edgewise
