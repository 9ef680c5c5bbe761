// Encoder: tokens to states. A Transformer encoder with any edge source; by default the pre-norm one of the
// SBM paper's experiments.
//
//   x = dropout(scale token + position + W features);  x = block(x), layer by layer;  norm(x) * mask
//
// where post-norm blocks bring the last norm themselves.
// Parameter names follow Python's nn.TransformerEncoder.
#pragma once

#include <edgewise/attention/multihead_attention.h>
#include <edgewise/models/batch.h>
#include <edgewise/models/block.h>

#include <torch/nn/modules/embedding.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise {

// kNone: the encoder sees a set of tokens, not a sequence. kSinusoidal: sinusoids(), added like learned ones.
// kRotary: queries and keys of self-attention are turned by their places
// (MultiheadEdgeAttentionOptions::rotary).
enum class Positions { kLearned, kNone, kSinusoidal, kRotary };
Positions parse_positions(std::string_view name);  // "learned" | "none" | "sinusoidal" | "rotary"
std::string_view to_string(Positions positions);

// Position embeddings as fairseq makes them: place n of the table is [sin(p f_i) | cos(p f_i)] with p = n + 2
// and f_i = 10000^(-i / (dim / 2 - 1)). [length, dim]; dim is even and at least 4.
at::Tensor sinusoids(int64_t length, int64_t dim);

// Makes the edge source of one layer; an empty function, or a null result, means dense attention.
using EdgeSourceFactory = std::function<EdgeSourcePtr(int64_t layer)>;
// Makes the attention method of one layer; an empty function, or a null result, means edges or dense
// attention.
using AttentionMethodFactory = std::function<AttentionMethodPtr(int64_t layer)>;

struct EncoderOptions {
  int64_t vocabulary = 0;  // of the tokens; 0 = none, features alone
  int64_t features = 0;    // F, numbers per token beside its id or in place of it
  int64_t max_length = 0;  // sequences may be shorter, never longer
  int64_t layers = 2;
  int64_t dim = 64;
  int64_t heads = 2;
  int64_t hidden = 128;
  double dropout = 0.1;
  double attention_dropout = 0.1;
  double token_dropout = 0;  // in training so many tokens are read as token 0
  Positions positions = Positions::kLearned;
  double embedding_std = 0.02;
  double embedding_scale = 1;  // times the token embedding
  BlockStyle style = {};       // without norm: no LayerNorm anywhere
  bool is_causal = false;
  EdgeSourceFactory edges;
  AttentionMethodFactory method;  // in place of edges
  bool shared_qk = false;         // one projection for queries and keys of norm 1
  bool in_proj_bias = true;
};

struct EncoderInput {
  Tower tower;
  RandomStream random = {};  // layer l of the encoder uses random.layer + l
  bool keep_edges = false;
  ActivationWatcher watch = {};
};

struct EncoderOutput : StackOutput {
  at::Tensor states;  // [B, N, dim], 0 at padding
};

class EncoderImpl : public torch::nn::Module {
 public:
  explicit EncoderImpl(EncoderOptions options);

  EncoderOutput forward(const EncoderInput& input);

  EncoderOptions options;
  torch::nn::Embedding token_embedding{nullptr};     // empty without a vocabulary
  torch::nn::Embedding position_embedding{nullptr};  // empty without learned positions
  at::Tensor places;                                 // sinusoids [max_length, dim]; undefined without
  torch::nn::Linear feature_projection{nullptr};     // empty without features
  std::vector<TransformerBlock> layers;
  torch::nn::LayerNorm norm{nullptr};

 private:
  at::Tensor embed(const Tower& tower);
};
TORCH_MODULE(Encoder);

}  // namespace edgewise
