// PreNormBlock: the block that encoders and language models are stacks of, around any attention.
//
//   x += dropout(attention(norm1(x)));  x += dropout(linear2(dropout(gelu(linear1(norm2(x))))))
//
// Parameter names follow Python's nn.TransformerEncoderLayer(norm_first=True, activation="gelu").
#pragma once

#include <edgewise/attention/self_attention.h>

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <string>
#include <vector>

namespace edgewise {

// Called with the name and value of every intermediate state, in the order they are computed.
using ActivationWatcher = std::function<void(const std::string& name, const at::Tensor& value)>;

struct PreNormBlockOptions {
  int64_t dim = 64;
  int64_t hidden = 128;
  double dropout = 0.1;
  bool norm = true;  // false: no LayerNorm
};

class PreNormBlockImpl : public torch::nn::Module {
 public:
  PreNormBlockImpl(const PreNormBlockOptions& options, SelfAttentionPtr attention);

  // Changes input.x [B, N, dim] by both residual branches; `output` of the result is the new x. input.memory
  // holds earlier x, before the norm. States are told as name + "self_attn" and name + "mlp".
  AttentionOutput forward(AttentionInput input, const ActivationWatcher& watch = {},
                          const std::string& name = {});

  SelfAttentionPtr self_attn;
  torch::nn::Linear linear1{nullptr}, linear2{nullptr};
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};  // empty without norm

 private:
  double dropout_;
};
TORCH_MODULE(PreNormBlock);

// What the layers of a stack say beside their output.
struct StackOutput {
  at::Tensor densities;   // [layers, H] double, detached
  at::Tensor penalty;     // scalar, mean over the learning layers and their heads; undefined when none learns
  at::Tensor edge_count;  // over all layers: int64, a number on the device
  std::vector<EdgeSet> edges;        // one per layer with a source, when asked for
  std::vector<AttentionView> views;  // one per layer, when its edges are asked for; none of methods
  std::vector<EdgePolicy> policies;  // one per layer whose source learns by reward, in training

  // Takes in the next layer, and gives its output back; then finish(), once.
  at::Tensor add(AttentionOutput layer);
  void finish();

 private:
  std::vector<at::Tensor> layer_densities_, layer_penalties_;
};

}  // namespace edgewise
