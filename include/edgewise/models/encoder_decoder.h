// EncoderDecoder: the Transformer that translates (Vaswani et al. 2017), over any edge source in all three
// places: in the encoder, among the tokens of the decoder, and across from the decoder to the source.
//
//   states = encoder(source)
//   x = dropout(sqrt(dim) token + position);  x = block(x, states), layer by layer;  logits = W norm(x)
//
// It starts as fairseq's does: embeddings N(0, 1 / dim), queries, keys and values Xavier-uniform over
// sqrt(2), all other products Xavier-uniform, their biases 0.
#pragma once

#include <edgewise/attention/multihead_attention.h>
#include <edgewise/models/encoder.h>
#include <edgewise/models/model.h>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

namespace edgewise {

struct EncoderDecoderOptions {
  // Of both sides but for its edges and method; max_length counts the marks at the ends. Its embeddings'
  // scale and deviation are not looked at.
  EncoderOptions encoder;
  int64_t decoder_layers = 0;       // 0: as many as the encoder has
  EdgeSourceFactory decoder_edges;  // among the tokens of the decoder; empty: dense, as the next
  EdgeSourceFactory cross_edges;    // across to the source
  bool shared_embedding = true;     // the decoder reads tokens as the encoder does
  bool tied = true;                 // the output layer is the decoder's token embedding, else of its own
  int64_t padding = -1;             // id of a token whose embedding begins as 0; -1: none
};

// What is kept of a translation that grows, so that a new token costs one row a layer.
struct TranslationCache {
  std::vector<LayerCache> self, across;  // per layer of the decoder
  int64_t length = 0;                    // tokens read

  // The rows [n] of the batch, int64, in this order and as often as they are named.
  void select_rows(const at::Tensor& rows);
};

// A source as the decoder reads it.
struct EncodedSource {
  at::Tensor states;               // [B, S, dim]
  std::optional<at::Tensor> mask;  // [B, S] bool
};

class EncoderDecoderImpl : public Model {
 public:
  explicit EncoderDecoderImpl(EncoderDecoderOptions options);

  // Batch::towers are the source and what the decoder reads of the target, each padded behind its end alone
  // -> logits [B, T, vocabulary] of the token after each. Layers in the output: the encoder's, the decoder's
  // own, the decoder's across; layer l of these uses random.layer + l.
  ModelOutput forward(const ModelInput& input) override;

  // Without gradients: for a search.
  EncodedSource encode(const Tower& source, const RandomStream& random);
  // The logits [B, vocabulary] behind tokens [B, T]; all begin with the first token of the translation.
  at::Tensor read(const at::Tensor& tokens, const EncodedSource& source, const RandomStream& random);
  // The same with `tokens` [B, n] behind those in the cache.
  at::Tensor read(const at::Tensor& tokens, const EncodedSource& source, const RandomStream& random,
                  TranslationCache& cache);
  // Why a cache would give other edges than forward(); empty when it gives the same.
  std::string cache_refusal() const;
  // Whether any layer chooses edges, which may depend on the item's number.
  bool has_edges() const;

  EncoderDecoderOptions options;
  Encoder encoder{nullptr};
  torch::nn::Embedding token_embedding{nullptr};     // of the decoder; the encoder's where it is shared
  torch::nn::Embedding position_embedding{nullptr};  // of the decoder; empty without learned positions
  at::Tensor places;                                 // sinusoids; undefined without
  std::vector<TransformerBlock> layers;              // of the decoder
  torch::nn::LayerNorm norm{nullptr};                // of the decoder; empty with post-norm
  torch::nn::Linear output{nullptr};                 // empty when tied

 private:
  struct Layers;  // what the layers of the decoder say
  void make_decoder();
  void reset_parameters();
  at::Tensor embed(const at::Tensor& tokens, int64_t first) const;
  at::Tensor logits(const at::Tensor& x);
  at::Tensor layer_pairs(const Batch& batch) const;
  at::Tensor decode(AttentionInput self, AttentionInput across, TranslationCache* cache, Layers* told,
                    const ActivationWatcher& watch);
};
TORCH_MODULE(EncoderDecoder);

}  // namespace edgewise
