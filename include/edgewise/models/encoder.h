// Encoder: tokens to states. The pre-norm Transformer encoder of the SBM paper's experiments, with any edge
// source.
//
//   x = dropout(token + position);  x += dropout(attention(norm1(x)));  x += mlp(norm2(x));  norm(x) * mask
//
// Parameter names follow Python's nn.TransformerEncoder(norm_first=True, activation="gelu").
#pragma once

#include <edgewise/attention/multihead_attention.h>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise {

// kNone: the encoder sees a set of tokens, not a sequence.
enum class Positions { kLearned, kNone };
Positions parse_positions(std::string_view name);  // "learned" | "none"
std::string_view to_string(Positions positions);

// Makes the edge source of one layer; an empty function, or a null result, means dense attention.
using EdgeSourceFactory = std::function<EdgeSourcePtr(int64_t layer)>;
// Makes the attention method of one layer; an empty function, or a null result, means edges or dense
// attention.
using AttentionMethodFactory = std::function<AttentionMethodPtr(int64_t layer)>;

// Called with the name and value of every intermediate state, in the order they are computed.
using ActivationWatcher = std::function<void(const std::string& name, const at::Tensor& value)>;

struct EncoderOptions {
  int64_t vocabulary = 0;
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
  bool norm = true;  // false: no LayerNorm anywhere
  bool is_causal = false;
  EdgeSourceFactory edges;
  AttentionMethodFactory method;  // in place of edges
  bool shared_qk = false;         // one projection for queries and keys of norm 1
  bool in_proj_bias = true;
};

struct EncoderInput {
  at::Tensor tokens;               // [B, N] int64
  std::optional<at::Tensor> mask;  // [B, N] bool, true = valid token; absent = all valid
  at::Tensor positions = {};       // [B, N] int64 below max_length; undefined = token n stands at n
  RandomStream random;             // layer l of the encoder uses random.layer + l
  bool keep_edges = false;
  ActivationWatcher watch;
};

struct EncoderOutput {
  at::Tensor states;      // [B, N, dim], 0 at padding
  at::Tensor densities;   // [layers, H] double, detached
  at::Tensor penalty;     // scalar, mean over the learning layers and their heads; undefined when none learns
  at::Tensor edge_count;  // over all layers: int64, a number on the device
  std::vector<EdgeSet> edges;        // one per layer with a source, when asked for
  std::vector<EdgePolicy> policies;  // one per layer whose source learns by reward, in training
};

class EncoderLayerImpl : public torch::nn::Module {
 public:
  EncoderLayerImpl(const EncoderOptions& options, int64_t layer);

  // Changes x [B, N, dim] by both residual branches; `output` of the result is the new x.
  AttentionOutput forward(const at::Tensor& x, const std::optional<at::Tensor>& mask,
                          const RandomStream& random, bool keep_edges,
                          const std::function<void(const char*, const at::Tensor&)>& watch = {});

  MultiheadEdgeAttention self_attn{nullptr};
  torch::nn::Linear linear1{nullptr}, linear2{nullptr};
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};  // empty without norm

 private:
  double dropout_;
};
TORCH_MODULE(EncoderLayer);

class EncoderImpl : public torch::nn::Module {
 public:
  explicit EncoderImpl(EncoderOptions options);

  EncoderOutput forward(const EncoderInput& input);

  EncoderOptions options;
  torch::nn::Embedding token_embedding{nullptr};
  torch::nn::Embedding position_embedding{nullptr};  // empty without positions
  std::vector<EncoderLayer> layers;
  torch::nn::LayerNorm norm{nullptr};

 private:
  at::Tensor embed(const EncoderInput& input) const;
};
TORCH_MODULE(Encoder);

}  // namespace edgewise
