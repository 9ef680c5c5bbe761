#include <edgewise/models/language_model.h>

#include <torch/nn/functional.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>

#include "models/layers.h"

namespace edgewise {
namespace {

void check_tokens(int64_t vocabulary, const at::Tensor& tokens) {
  TORCH_CHECK_VALUE(tokens.defined() && tokens.dim() == 2 && tokens.size(1) > 0,
                    "LanguageModel: expected tokens [B, N], N at least 1; got ",
                    tokens.defined() ? c10::str(tokens.sizes()) : "an undefined tensor");
  TORCH_CHECK_TYPE(tokens.scalar_type() == at::kLong, "LanguageModel: expected int64 tokens; got ",
                   tokens.scalar_type());
  if (!tokens.is_cpu()) return;  // looking would wait for the device, whose embedding asserts
  const auto [lowest, highest] = tokens.aminmax();
  TORCH_CHECK_INDEX(lowest.item<int64_t>() >= 0 && highest.item<int64_t>() < vocabulary,
                    "LanguageModel: expected token ids in [0, ", vocabulary, "); got ids from ",
                    lowest.item<int64_t>(), " to ", highest.item<int64_t>());
}

// The inputs of a layer that the next segment may still use.
at::Tensor next_memory(const at::Tensor& memory, const at::Tensor& x, int64_t limit) {
  const at::Tensor all = memory.defined() ? at::cat({memory, x.detach()}, 1) : x.detach();
  const int64_t kept = std::min(limit, all.size(1));
  return all.narrow(1, all.size(1) - kept, kept);
}

}  // namespace

LanguageModelImpl::LanguageModelImpl(LanguageModelOptions options_) : options(std::move(options_)) {
  TORCH_CHECK_VALUE(
      options.bytes.size() <= 256 && options.bytes.empty() == (options.tokens > 0),
      "LanguageModel: expected 1 to 256 bytes as vocabulary, or a number of tokens of at least 1; "
      "got ",
      options.bytes.size(), " and ", options.tokens);
  TORCH_CHECK_VALUE(options.context > 0 && options.layers > 0,
                    "LanguageModel: expected a context and layers of at least 1; got ", options.context,
                    " and ", options.layers);
  TORCH_CHECK_VALUE(options.attention, "LanguageModel: expected a function that makes its attention");
  if (!options.bytes.empty())
    bytes = register_buffer(
        "bytes", torch::tensor(std::vector<int64_t>(options.bytes.begin(), options.bytes.end()), at::kLong)
                     .to(at::kByte));
  token_embedding = register_module("token_embedding", torch::nn::Embedding(vocabulary(), options.dim));
  torch::nn::init::normal_(token_embedding->weight, 0, options.embedding_std);
  auto list = torch::nn::ModuleList();
  const BlockOptions block{
      .dim = options.dim, .hidden = options.hidden, .dropout = options.dropout, .style = options.style};
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    attentions_.push_back(options.attention(layer));
    layers.emplace_back(block, attentions_.back());
    list->push_back(layers.back());
    const std::string reason = attentions_.back()->causal_refusal();
    TORCH_CHECK_VALUE(reason.empty(), "LanguageModel: expected attention to tokens up to the query's only; ",
                      reason);
  }
  if (options.positions == Positions::kLearned && !attention().is_relative()) {
    position_embedding =
        register_module("position_embedding", torch::nn::Embedding(options.context, options.dim));
    torch::nn::init::normal_(position_embedding->weight, 0, options.embedding_std);
  }
  if (options.positions == Positions::kSinusoidal && !attention().is_relative())
    places = register_buffer("places", sinusoids(options.context, options.dim));
  register_module("layers", list);
  if (options.style.norm && options.style.norm_first) norm = register_module("norm", make_norm(options.dim));
  if (!options.tied) output = register_module("output", torch::nn::Linear(options.dim, vocabulary()));
}

at::Tensor LanguageModelImpl::embed(const at::Tensor& tokens, int64_t first, int64_t extra_rows) const {
  const at::Tensor table = position_embedding.is_empty() ? places : position_embedding->weight;
  const at::Tensor x =
      ops::embed({.tokens = tokens,
                  .table = token_embedding->weight,
                  .positions = {},
                  .places = table.defined() ? table.slice(0, first, first + tokens.size(1)) : at::Tensor()},
                 options.dropout, is_training());  // [B, N, dim]
  if (extra_rows == 0) return x;
  // Spans of tokens begin as zeros, as in the published model.
  return at::cat({x, at::zeros({x.size(0), extra_rows, x.size(2)}, x.options())}, 1);
}

at::Tensor LanguageModelImpl::logits(const at::Tensor& x, int64_t tokens) {
  const at::Tensor states = normed(norm, x.narrow(1, 0, tokens));
  return options.tied ? torch::nn::functional::linear(states, token_embedding->weight)
                      : output->forward(states);
}

ModelOutput LanguageModelImpl::forward(const ModelInput& input) {
  TORCH_CHECK_VALUE(input.batch.towers.size() == 1 && !input.batch.towers[0].mask.defined() &&
                        !input.batch.towers[0].features.defined() &&
                        !input.batch.towers[0].relations.defined(),
                    "LanguageModel: expected one sequence of tokens per item, without a mask, features or "
                    "relations");
  at::Tensor tokens = input.batch.towers[0].tokens;
  check_tokens(vocabulary(), tokens);
  const int64_t length = tokens.size(1), memory = attention().memory();
  TORCH_CHECK_VALUE(length <= options.context, "LanguageModel: expected at most context = ", options.context,
                    " tokens; got ", length);
  TORCH_CHECK_VALUE(input.memories.empty() || input.memories.size() == layers.size(),
                    "LanguageModel: expected one memory per layer, ", layers.size(), ", or none; got ",
                    input.memories.size());
  const int64_t extra_rows = attention().extra_rows();
  // A tree stands over a whole window; no token sees those after it.
  if (extra_rows > 0 && length < options.context)
    tokens = at::constant_pad_nd(tokens, {0, options.context - length}, 0);
  AttentionInput layer{
      .x = embed(tokens, 0, extra_rows), .random = input.random, .keep_edges = input.keep_edges};
  if (input.watch) input.watch("embedding", layer.x);

  ModelOutput result;
  for (size_t index = 0; index < layers.size(); ++index, ++layer.random.layer) {
    layer.memory = input.memories.empty() ? at::Tensor() : input.memories[index];
    if (memory > 0) result.memories.push_back(next_memory(layer.memory, layer.x, memory));
    layer.x = result.add(layers[index]->forward(layer, input.watch, "layers." + std::to_string(index) + "."));
    const at::Tensor extra = attentions_[index]->loss();
    if (extra.defined()) result.extra_loss = result.extra_loss.defined() ? result.extra_loss + extra : extra;
  }
  result.finish();
  result.logits = logits(layer.x, length);
  if (input.watch) input.watch("logits", result.logits);
  if (result.penalty.defined()) result.tower_penalties = {result.penalty};
  return result;
}

void LanguageModelImpl::after_step() {
  for (const CausalAttentionPtr& layer : attentions_) layer->after_step();
}

bool LanguageModelImpl::forgets() const {
  return attention().is_relative() && attention().extra_rows() == 0;
}

int64_t LanguageModelImpl::cache_limit() const {
  return options.context + (forgets() ? attention().memory() : 0);
}

std::string LanguageModelImpl::cache_refusal() const {
  for (const CausalAttentionPtr& layer : attentions_)
    if (std::string reason = layer->cache_refusal(); !reason.empty()) return reason;
  return {};
}

at::Tensor LanguageModelImpl::read(const at::Tensor& tokens, DecoderCache& cache,
                                   const RandomStream& random) {
  const torch::NoGradGuard no_grad;
  check_tokens(vocabulary(), tokens);
  const int64_t count = tokens.size(1);
  TORCH_CHECK_VALUE(forgets() || cache.length + count <= options.context,
                    "LanguageModel::read: expected at most context = ", options.context,
                    " tokens in all; got ", cache.length, " read before and ", count,
                    " new ones. Begin again with the last of them in a new cache.");
  cache.layers.resize(layers.size());
  AttentionInput layer;
  layer.random = random;
  layer.rows = attention().new_rows(cache.length, count);
  layer.x = embed(tokens, cache.length, static_cast<int64_t>(layer.rows.size()) - count);
  for (size_t index = 0; index < layers.size(); ++index, ++layer.random.layer) {
    layer.cache = &cache.layers[index];
    if (forgets()) {  // no query sees more than the last one of a segment behind a full memory
      const int64_t kept = std::max<int64_t>(cache_limit() - count, 0);
      layer.cache->key.keep_last(kept);
      layer.cache->value.keep_last(kept);
    }
    layer.x = layers[index]->forward(layer).output;
  }
  cache.length += count;
  return logits(layer.x, count);
}

}  // namespace edgewise
