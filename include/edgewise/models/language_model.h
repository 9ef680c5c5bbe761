// LanguageModel: a decoder that predicts the next token, over any causal attention.
//
//   x = dropout(token + position);  x = block(x), layer by layer;  logits = W norm(x)
//
// Attention that knows positions by itself (Transformer-XL, Adaptive Span,
// BP-Transformer) gets no position embedding; attention with a memory carries the inputs of every layer from
// one segment of a text to the next. With a cache a new token costs one row per layer.
#pragma once

#include <edgewise/attention/causal_attention.h>
#include <edgewise/models/encoder.h>
#include <edgewise/models/model.h>

#include <torch/nn/modules/embedding.h>

#include <functional>
#include <string>
#include <vector>

namespace edgewise {

// Makes the attention of one layer.
using CausalAttentionFactory = std::function<CausalAttentionPtr(int64_t layer)>;

struct LanguageModelOptions {
  // What ids stand for: of a text byte by byte, id -> byte, whose number is the vocabulary; else how many
  // there are, and a tokeniser says what they mean.
  std::vector<uint8_t> bytes = {};
  int64_t tokens = 0;
  int64_t context = 0;  // tokens of a segment
  int64_t layers = 2;
  int64_t dim = 64;
  int64_t hidden = 128;
  double dropout = 0.1;
  Positions positions = Positions::kLearned;  // ignored by attention that is_relative()
  double embedding_std = 0.02;
  BlockStyle style = {};
  bool tied = true;  // the output layer is the token embedding; else a layer of its own, with bias
  CausalAttentionFactory attention;
};

// What a model keeps of the tokens it has read.
struct DecoderCache {
  std::vector<LayerCache> layers;
  int64_t length = 0;  // tokens read; positions in the window
};

class LanguageModelImpl : public Model {
 public:
  explicit LanguageModelImpl(LanguageModelOptions options);

  // tokens [B, N], N <= context -> logits [B, N, vocabulary] of the token after each.
  ModelOutput forward(const ModelInput& input) override;
  void after_step() override;

  // The logits [B, n, vocabulary] behind new tokens [B, n] that follow those in the cache; without gradients.
  // Attention that is_relative() without extra rows keeps the last cache_limit() tokens; other attention
  // takes `context` tokens in all.
  at::Tensor read(const at::Tensor& tokens, DecoderCache& cache, const RandomStream& random);
  bool forgets() const;         // whether read() may go on for ever
  int64_t cache_limit() const;  // tokens
  // Why read() would choose other edges than forward(); empty when it chooses the same.
  std::string cache_refusal() const;

  LanguageModelOptions options;
  int64_t vocabulary() const { return options.bytes.empty() ? options.tokens : std::ssize(options.bytes); }
  at::Tensor bytes;  // [vocabulary] uint8, of bytes: a checkpoint says what its tokens mean; else undefined
  torch::nn::Embedding token_embedding{nullptr};
  torch::nn::Embedding position_embedding{nullptr};  // empty without learned positions
  at::Tensor places;                                 // sinusoids [context, dim]; undefined without
  std::vector<TransformerBlock> layers;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear output{nullptr};  // empty when tied

 private:
  at::Tensor embed(const at::Tensor& tokens, int64_t first, int64_t extra_rows) const;
  at::Tensor logits(const at::Tensor& x, int64_t tokens);
  const CausalAttention& attention() const { return *attentions_.front(); }

  std::vector<CausalAttentionPtr> attentions_;  // of the layers
};
TORCH_MODULE(LanguageModel);

}  // namespace edgewise
