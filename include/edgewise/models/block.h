// TransformerBlock: the block that encoders, decoders and language models are stacks of, around any
// attention.
//
//   pre-norm:   x += dropout(f(norm(x)));   post-norm:   x = norm(x + dropout(f(x)))
//
// for f = self-attention, then attention to another sequence where there is one, then
// linear2(dropout(act(linear1))). Parameter names follow Python's nn.TransformerEncoderLayer and
// nn.TransformerDecoderLayer.
#pragma once

#include <edgewise/attention/self_attention.h>

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise {

// Called with the name and value of every intermediate state, in the order they are computed.
using ActivationWatcher = std::function<void(const std::string& name, const at::Tensor& value)>;

enum class Activation { kGelu, kRelu };
Activation parse_activation(std::string_view name);  // "gelu" | "relu"

// What every block of a model has in common.
struct BlockStyle {
  bool norm = true;                                     // false: no LayerNorm
  bool norm_first = true;                               // pre-norm, else post-norm
  Activation activation = Activation::kGelu;            // of the MLP
  std::optional<double> hidden_dropout = std::nullopt;  // inside the MLP; none: the block's dropout
};

struct BlockOptions {
  int64_t dim = 64;
  int64_t hidden = 128;
  double dropout = 0.1;
  BlockStyle style = {};
};

class TransformerBlockImpl : public torch::nn::Module {
 public:
  // cross_attention: of decoders that read another sequence; null: none.
  TransformerBlockImpl(const BlockOptions& options, SelfAttentionPtr attention,
                       SelfAttentionPtr cross_attention = nullptr);

  // Changes input.x [B, N, dim] by both residual branches; `output` of the result is the new x. input.memory
  // holds earlier x, before the norm. States are told as name + "self_attn" and name + "mlp".
  AttentionOutput forward(AttentionInput input, const ActivationWatcher& watch = {},
                          const std::string& name = {});

  // With attention across sequences in between, told as name + "multihead_attn": `cross` says to what. The
  // new x is the output of `across`.
  struct Decoded {
    AttentionOutput self, across;
  };
  Decoded decode(AttentionInput input, AttentionInput cross, const ActivationWatcher& watch = {},
                 const std::string& name = {});

  SelfAttentionPtr self_attn, multihead_attn;
  torch::nn::Linear linear1{nullptr}, linear2{nullptr};
  // Of self-attention, [cross-attention,] MLP; empty without norm.
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr}, norm3{nullptr};

 private:
  AttentionOutput attend(SelfAttention& attention, const torch::nn::LayerNorm& norm, AttentionInput input);
  at::Tensor mlp(const at::Tensor& x);
  // x + dropout(branch), and the norm behind it where that comes last.
  at::Tensor add(const at::Tensor& x, const at::Tensor& branch, const torch::nn::LayerNorm& norm);

  double dropout_;
  BlockStyle style_;
};
TORCH_MODULE(TransformerBlock);

// What the layers of a stack say beside their output.
struct StackOutput {
  at::Tensor densities;   // [layers, H] double, detached
  at::Tensor penalty;     // scalar, mean over the learning layers and their heads; undefined when none learns
  at::Tensor edge_count;  // over all layers: int64, a number on the device
  std::vector<EdgeSet> edges;        // one per layer with a source, when asked for
  std::vector<AttentionView> views;  // one per layer, when its edges are asked for; none of methods
  std::vector<EdgePolicy> policies;  // one per layer whose source learns by reward, in training

  // Takes in the next layer, and gives its output back; then finish(). More may be added behind it, if
  // finish() comes again.
  at::Tensor add(AttentionOutput layer);
  void finish();

 private:
  std::vector<at::Tensor> layer_densities_, layer_penalties_;
};

}  // namespace edgewise
