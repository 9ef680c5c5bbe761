#include <edgewise/models/encoder_decoder.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <torch/nn/functional.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/utils.h>

#include "models/layers.h"

namespace edgewise {
namespace {

EncoderOptions encoder_options(const EncoderDecoderOptions& options) {
  EncoderOptions encoder = options.encoder;
  encoder.embedding_scale = std::sqrt(static_cast<double>(encoder.dim));
  encoder.embedding_std = 1 / encoder.embedding_scale;
  return encoder;
}

void check_towers(const EncoderDecoderOptions& options, const Batch& batch) {
  TORCH_CHECK_VALUE(batch.towers.size() == 2 && batch.towers[1].tokens.defined(),
                    "EncoderDecoder: expected two towers, a source and what is read of its translation; got ",
                    batch.towers.size());
  const at::Tensor& tokens = batch.towers[1].tokens;
  TORCH_CHECK_VALUE(tokens.dim() == 2 && tokens.size(0) == batch.towers[0].items() && tokens.size(1) >= 1 &&
                        tokens.size(1) <= options.encoder.max_length,
                    "EncoderDecoder: expected ", batch.towers[0].items(),
                    " translations of 1 to max_length = ", options.encoder.max_length, " tokens; got ",
                    tokens.sizes());
}

void xavier(const at::Tensor& weight, double inputs, double outputs, double gain) {
  const double bound = gain * std::sqrt(6 / (inputs + outputs));
  torch::nn::init::uniform_(weight, -bound, bound);
}

}  // namespace

// The decoder's layers, and behind them those across.
struct EncoderDecoderImpl::Layers {
  StackOutput* stack;
  std::vector<AttentionOutput> across;

  at::Tensor add(TransformerBlockImpl::Decoded layer) {
    const at::Tensor x = layer.across.output;
    stack->add(std::move(layer.self));
    across.push_back(std::move(layer.across));
    return x;
  }
  void finish() {
    for (AttentionOutput& layer : across) stack->add(std::move(layer));
    stack->finish();
  }
};

void TranslationCache::select_rows(const at::Tensor& rows) {
  for (std::vector<LayerCache>* layers : {&self, &across})
    for (LayerCache& layer : *layers)
      for (RowBuffer* kept : {&layer.key, &layer.value, &layer.features}) kept->select_items(rows);
}

EncoderDecoderImpl::EncoderDecoderImpl(EncoderDecoderOptions options_) : options(std::move(options_)) {
  TORCH_CHECK_VALUE(options.encoder.vocabulary > 0 && options.encoder.features == 0,
                    "EncoderDecoder: expected a vocabulary and no features; got ", options.encoder.vocabulary,
                    " and ", options.encoder.features);
  TORCH_CHECK_VALUE(options.decoder_layers >= 0,
                    "EncoderDecoder: expected decoder_layers of at least 0; got ", options.decoder_layers);
  TORCH_CHECK_VALUE(options.padding >= -1 && options.padding < options.encoder.vocabulary,
                    "EncoderDecoder: expected padding among the ", options.encoder.vocabulary,
                    " tokens; got ", options.padding);
  if (options.decoder_layers == 0) options.decoder_layers = options.encoder.layers;
  encoder = register_module("encoder", Encoder(encoder_options(options)));
  make_decoder();
  reset_parameters();
}

void EncoderDecoderImpl::make_decoder() {
  const EncoderOptions& common = encoder->options;
  if (options.shared_embedding)
    token_embedding = encoder->token_embedding;  // whose parameter it is
  else
    token_embedding = register_module("token_embedding", torch::nn::Embedding(common.vocabulary, common.dim));
  if (common.positions == Positions::kLearned)
    position_embedding =
        register_module("position_embedding", torch::nn::Embedding(common.max_length, common.dim));
  if (common.positions == Positions::kSinusoidal)
    places = register_buffer("places", sinusoids(common.max_length, common.dim));
  auto list = torch::nn::ModuleList();
  const auto heads = [&](const EdgeSourceFactory& edges, int64_t layer) {
    MultiheadEdgeAttentionOptions result(common.dim, common.heads);
    result.dropout_p = common.attention_dropout;
    if (edges) result.source = edges(layer);
    return result;
  };
  for (int64_t layer = 0; layer < options.decoder_layers; ++layer) {
    MultiheadEdgeAttentionOptions own = heads(options.decoder_edges, layer),
                                  across = heads(options.cross_edges, layer);
    own.rotary = common.positions == Positions::kRotary;
    if (own.source) {
      const std::string reason = own.source->causal_refusal();
      TORCH_CHECK_VALUE(reason.empty(),
                        "EncoderDecoder: expected edges to tokens up to the query's in the decoder; ",
                        reason);
    }
    if (across.source) {
      const std::string reason = across.source->cross_refusal();
      TORCH_CHECK_VALUE(reason.empty(),
                        "EncoderDecoder: expected edges from one sequence to another across; ", reason);
    }
    layers.emplace_back(
        BlockOptions{
            .dim = common.dim, .hidden = common.hidden, .dropout = common.dropout, .style = common.style},
        CausalEdgeAttention(own).ptr(), MultiheadEdgeAttention(across).ptr());
    list->push_back(layers.back());
  }
  register_module("layers", list);
  if (common.style.norm && common.style.norm_first) norm = register_module("norm", make_norm(common.dim));
  if (!options.tied)
    output = register_module(
        "output", torch::nn::Linear(torch::nn::LinearOptions(common.dim, common.vocabulary).bias(false)));
}

void EncoderDecoderImpl::reset_parameters() {
  const torch::NoGradGuard no_grad;
  const auto width = static_cast<double>(options.encoder.dim),
             hidden = static_cast<double>(options.encoder.hidden);
  const auto attention = [&](const SelfAttentionPtr& layer) {
    const auto edges = std::dynamic_pointer_cast<MultiheadEdgeAttentionImpl>(layer);
    if (!edges) return;
    xavier(edges->in_proj_weight, width, width, 1 / std::sqrt(2.0));
    xavier(edges->out_proj->weight, width, width, 1);
    edges->out_proj->bias.zero_();
  };
  for (const std::vector<TransformerBlock>* stack : {&encoder->layers, &layers})
    for (const TransformerBlock& block : *stack) {
      attention(block->self_attn);
      if (block->multihead_attn) attention(block->multihead_attn);
      xavier(block->linear1->weight, width, hidden, 1);
      xavier(block->linear2->weight, hidden, width, 1);
      block->linear1->bias.zero_();
      block->linear2->bias.zero_();
    }
  const auto embedding = [&](const torch::nn::Embedding& table) {
    torch::nn::init::normal_(table->weight, 0, 1 / std::sqrt(width));
    if (options.padding >= 0) table->weight[options.padding].zero_();
  };
  embedding(encoder->token_embedding);
  if (!options.shared_embedding) embedding(token_embedding);
  for (const torch::nn::Embedding& table : {encoder->position_embedding, position_embedding})
    if (!table.is_empty()) torch::nn::init::normal_(table->weight, 0, 1 / std::sqrt(width));
  if (!options.tied) torch::nn::init::normal_(output->weight, 0, 1 / std::sqrt(width));
}

at::Tensor EncoderDecoderImpl::embed(const at::Tensor& tokens, int64_t first) const {
  const at::Tensor table = position_embedding.is_empty() ? places : position_embedding->weight;
  return ops::embed(
      {.tokens = tokens,
       .table = token_embedding->weight * encoder->options.embedding_scale,
       .positions = {},
       .places = table.defined() ? table.slice(0, first, first + tokens.size(1)) : at::Tensor()},
      options.encoder.dropout, is_training());
}

at::Tensor EncoderDecoderImpl::logits(const at::Tensor& x) {
  return torch::nn::functional::linear(normed(norm, x),
                                       options.tied ? token_embedding->weight : output->weight);
}

// self.x and the randoms' layers are those of the first layer; with a cache self.rows too.
at::Tensor EncoderDecoderImpl::decode(AttentionInput self, AttentionInput across, TranslationCache* cache,
                                      Layers* told, const ActivationWatcher& watch) {
  across.is_cross = true;
  across.keep_edges = self.keep_edges;
  across.rows = self.rows;
  for (size_t index = 0; index < layers.size(); ++index, ++self.random.layer, ++across.random.layer) {
    if (cache) {
      self.cache = &cache->self[index];
      across.cache = &cache->across[index];
    }
    auto layer = layers[index]->decode(self, across, watch, "decoder.layers." + std::to_string(index) + ".");
    self.x = layer.across.output;
    if (told) told->add(std::move(layer));
  }
  return self.x;
}

ModelOutput EncoderDecoderImpl::forward(const ModelInput& input) {
  check_towers(options, input.batch);
  EncoderInput source{.tower = input.batch.towers[0], .random = input.random, .keep_edges = input.keep_edges};
  if (input.watch)
    source.watch = [&](const std::string& name, const at::Tensor& value) {
      input.watch("encoder." + name, value);
    };
  EncoderOutput encoded = encoder->forward(source);

  const Tower& target = input.batch.towers[1];
  RandomStream random = input.random;
  random.layer += static_cast<uint32_t>(options.encoder.layers);
  AttentionInput self{.x = embed(target.tokens, 0), .random = random, .keep_edges = input.keep_edges};
  if (input.watch) input.watch("decoder.embedding", self.x);
  // Padding stands behind every valid token, none of which sees it: only a source of edges need know.
  if (options.decoder_edges) self.key_mask = target.key_mask();
  random.layer += static_cast<uint32_t>(options.decoder_layers);
  AttentionInput across{.x = {}, .key_mask = source.tower.key_mask(), .random = random};
  across.source = encoded.states;
  if (options.cross_edges) across.query_mask = target.key_mask();

  ModelOutput result;
  static_cast<StackOutput&>(result) = std::move(static_cast<StackOutput&>(encoded));
  Layers told{.stack = &result, .across = {}};
  result.logits = logits(decode(std::move(self), std::move(across), nullptr, &told, input.watch));
  told.finish();
  if (input.watch) input.watch("logits", result.logits);
  if (!is_training()) result.layer_pairs = layer_pairs(input.batch);
  // Of all layers together, on both towers alike.
  if (result.penalty.defined()) result.tower_penalties = {result.penalty, result.penalty};
  return result;
}

at::Tensor EncoderDecoderImpl::layer_pairs(const Batch& batch) const {
  const auto lengths = [](const Tower& tower) {
    return tower.mask.defined() ? tower.mask.sum(1).to(at::kCPU, at::kDouble)
                                : at::full({tower.items()}, tower.length(), at::kDouble);
  };
  const at::Tensor source = lengths(batch.towers[0]), target = lengths(batch.towers[1]);
  const auto repeated = [](const at::Tensor& pairs, int64_t times) { return pairs.sum().expand({times}); };
  return at::cat({repeated(source * source, options.encoder.layers),
                  repeated(target * (target + 1) / 2, options.decoder_layers),
                  repeated(source * target, options.decoder_layers)});
}

EncodedSource EncoderDecoderImpl::encode(const Tower& source, const RandomStream& random) {
  const torch::NoGradGuard no_grad;
  return {encoder->forward({.tower = source, .random = random}).states, source.key_mask()};
}

at::Tensor EncoderDecoderImpl::read(const at::Tensor& tokens, const EncodedSource& source,
                                    const RandomStream& random) {
  const torch::NoGradGuard no_grad;
  AttentionInput self{.x = embed(tokens, 0), .random = random},
      across{.x = {}, .key_mask = source.mask, .random = random};
  self.random.layer += static_cast<uint32_t>(options.encoder.layers);
  across.random.layer += static_cast<uint32_t>(options.encoder.layers + options.decoder_layers);
  across.source = source.states;
  const at::Tensor x = decode(std::move(self), std::move(across), nullptr, nullptr, {});
  return logits(x.select(1, x.size(1) - 1));
}

at::Tensor EncoderDecoderImpl::read(const at::Tensor& tokens, const EncodedSource& source,
                                    const RandomStream& random, TranslationCache& cache) {
  const torch::NoGradGuard no_grad;
  TORCH_CHECK_VALUE(cache.length + tokens.size(1) <= options.encoder.max_length,
                    "EncoderDecoder::read: expected at most max_length = ", options.encoder.max_length,
                    " tokens in all; got ", cache.length, " before and ", tokens.size(1), " new ones");
  cache.self.resize(layers.size());
  cache.across.resize(layers.size());
  AttentionInput self{.x = embed(tokens, cache.length), .random = random},
      across{.x = {}, .key_mask = source.mask, .random = random};
  self.random.layer += static_cast<uint32_t>(options.encoder.layers);
  across.random.layer += static_cast<uint32_t>(options.encoder.layers + options.decoder_layers);
  self.rows.resize(static_cast<size_t>(tokens.size(1)));
  std::iota(self.rows.begin(), self.rows.end(), cache.length);
  across.source = source.states;
  const at::Tensor x = decode(std::move(self), std::move(across), &cache, nullptr, {});
  cache.length += tokens.size(1);
  return logits(x.select(1, x.size(1) - 1));
}

std::string EncoderDecoderImpl::cache_refusal() const {
  for (const TransformerBlock& block : layers) {
    const auto own = std::dynamic_pointer_cast<CausalEdgeAttentionImpl>(block->self_attn);
    if (std::string reason = own->cache_refusal(); !reason.empty()) return reason;
    const auto across = std::dynamic_pointer_cast<MultiheadEdgeAttentionImpl>(block->multihead_attn);
    if (!across->options.source) continue;
    if (std::string reason = across->options.source->cross_growth_refusal(); !reason.empty()) return reason;
  }
  return {};
}

bool EncoderDecoderImpl::has_edges() const {
  return options.encoder.edges || options.decoder_edges || options.cross_edges;
}

}  // namespace edgewise
