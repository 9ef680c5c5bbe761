#include <edgewise/models/encoder.h>

#include <torch/nn/functional.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>

#include "models/layers.h"

namespace edgewise {
namespace {

void check_input(const EncoderOptions& options, const EncoderInput& input) {
  const at::Tensor& tokens = input.tokens;
  TORCH_CHECK_VALUE(tokens.defined() && tokens.dim() == 2, "Encoder: expected tokens [B, N]; got ",
                    tokens.defined() ? c10::str(tokens.sizes()) : "an undefined tensor");
  TORCH_CHECK_TYPE(tokens.scalar_type() == at::kLong, "Encoder: expected int64 tokens; got ",
                   tokens.scalar_type());
  TORCH_CHECK_VALUE(tokens.size(1) <= options.max_length,
                    "Encoder: expected at most max_length = ", options.max_length, " tokens; got ",
                    tokens.size(1), ". Cut the sequences or build the model with a larger max_length.");
  TORCH_CHECK_VALUE(!input.positions.defined() || (input.positions.sizes() == tokens.sizes() &&
                                                   input.positions.scalar_type() == at::kLong),
                    "Encoder: expected positions as int64 with the sizes of the tokens, ", tokens.sizes(),
                    "; got ", input.positions.scalar_type(), " of ", input.positions.sizes());
  // On a GPU the check would wait for the device; there the embedding itself asserts.
  if (tokens.is_cpu() && tokens.numel() > 0) {
    const auto [lowest, highest] = tokens.aminmax();
    TORCH_CHECK_INDEX(lowest.item<int64_t>() >= 0 && highest.item<int64_t>() < options.vocabulary,
                      "Encoder: expected token ids in [0, ", options.vocabulary, "); got ids from ",
                      lowest.item<int64_t>(), " to ", highest.item<int64_t>(),
                      ". Check that the data and the model share one vocabulary.");
  }
}

}  // namespace

Positions parse_positions(std::string_view name) {
  if (name == "learned") return Positions::kLearned;
  if (name == "none") return Positions::kNone;
  TORCH_CHECK_VALUE(false, "positions: expected learned or none; got '", name, "'");
}

std::string_view to_string(Positions positions) {
  return positions == Positions::kLearned ? "learned" : "none";
}

EncoderLayerImpl::EncoderLayerImpl(const EncoderOptions& options, int64_t layer) : dropout_(options.dropout) {
  MultiheadEdgeAttentionOptions attention(options.dim, options.heads);
  attention.dropout_p = options.attention_dropout;
  attention.is_causal = options.is_causal;
  if (options.edges) attention.source = options.edges(layer);
  if (options.method) attention.method = options.method(layer);
  attention.shared_qk = options.shared_qk;
  attention.in_proj_bias = options.in_proj_bias;
  self_attn = register_module("self_attn", MultiheadEdgeAttention(std::move(attention)));
  linear1 = register_module("linear1", torch::nn::Linear(options.dim, options.hidden));
  linear2 = register_module("linear2", torch::nn::Linear(options.hidden, options.dim));
  if (options.norm) {
    norm1 = register_module("norm1", make_norm(options.dim));
    norm2 = register_module("norm2", make_norm(options.dim));
  }
}

AttentionOutput EncoderLayerImpl::forward(const at::Tensor& x, const std::optional<at::Tensor>& mask,
                                          const RandomStream& random, bool keep_edges,
                                          const std::function<void(const char*, const at::Tensor&)>& watch) {
  const bool training = is_training();
  AttentionOutput result = self_attn->forward(normed(norm1, x), mask, random, keep_edges);
  if (watch) watch("self_attn", result.output);
  const at::Tensor attended = ops::add_dropped(x, result.output, dropout_, training);
  const at::Tensor hidden =
      torch::dropout(torch::gelu(projected(linear1, normed(norm2, attended, ops::NormOutput::kForProducts))),
                     dropout_, training);
  result.output = ops::add_dropped(attended, projected(linear2, hidden), dropout_, training);
  if (watch) watch("mlp", result.output);
  return result;
}

EncoderImpl::EncoderImpl(EncoderOptions options_) : options(std::move(options_)) {
  TORCH_CHECK_VALUE(options.vocabulary > 0 && options.max_length > 0,
                    "Encoder: expected a positive vocabulary and max_length; got ", options.vocabulary,
                    " and ", options.max_length);
  TORCH_CHECK_VALUE(options.layers > 0, "Encoder: expected at least one layer; got ", options.layers);
  TORCH_CHECK_VALUE(options.token_dropout >= 0 && options.token_dropout < 1,
                    "Encoder: expected token_dropout in [0, 1); got ", options.token_dropout);
  token_embedding = register_module("token_embedding", torch::nn::Embedding(options.vocabulary, options.dim));
  torch::nn::init::normal_(token_embedding->weight, 0, options.embedding_std);
  if (options.positions == Positions::kLearned) {
    position_embedding =
        register_module("position_embedding", torch::nn::Embedding(options.max_length, options.dim));
    torch::nn::init::normal_(position_embedding->weight, 0, options.embedding_std);
  }
  auto list = register_module("layers", torch::nn::ModuleList());
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    layers.emplace_back(options, layer);
    list->push_back(layers.back());
  }
  if (options.norm) norm = register_module("norm", make_norm(options.dim));
}

at::Tensor EncoderImpl::embed(const EncoderInput& input) const {
  const bool has_places = !position_embedding.is_empty();
  at::Tensor tokens = input.tokens;
  if (is_training() && options.token_dropout > 0)
    tokens = tokens.masked_fill(
        at::rand(tokens.sizes(), tokens.options().dtype(at::kFloat)) < options.token_dropout, 0);
  return ops::embed({.tokens = tokens,
                     .table = token_embedding->weight,
                     .positions = has_places ? input.positions : at::Tensor(),
                     .places = has_places ? position_embedding->weight : at::Tensor()},
                    options.dropout, is_training());
}

EncoderOutput EncoderImpl::forward(const EncoderInput& input) {
  check_input(options, input);
  at::Tensor x = embed(input);
  if (input.watch) input.watch("embedding", x);

  EncoderOutput result;
  std::vector<at::Tensor> densities, penalties;
  RandomStream random = input.random;
  for (size_t index = 0; index < layers.size(); ++index, ++random.layer) {
    std::function<void(const char*, const at::Tensor&)> watch;
    if (input.watch) {
      watch = [&](const char* part, const at::Tensor& value) {
        input.watch("layers." + std::to_string(index) + "." + part, value);
      };
    }
    AttentionOutput layer = layers[index]->forward(x, input.mask, random, input.keep_edges, watch);
    x = layer.output;
    densities.push_back(layer.density);
    if (layer.penalty.defined()) penalties.push_back(layer.penalty.mean());
    result.edge_count = result.edge_count.defined() ? result.edge_count + layer.edge_count : layer.edge_count;
    if (layer.policy) result.policies.push_back(*std::move(layer.policy));
    if (layer.edges) result.edges.push_back(*std::move(layer.edges));
  }
  // Whatever padding computed, even infinity, becomes 0.
  result.states = input.mask ? normed_or_zero(norm, x, *input.mask) : normed(norm, x);
  if (input.watch) input.watch("norm", result.states);
  result.densities = at::stack(densities);
  if (!penalties.empty()) result.penalty = at::stack(penalties).mean();
  return result;
}

}  // namespace edgewise
