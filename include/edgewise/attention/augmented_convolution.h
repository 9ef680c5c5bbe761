// AugmentedConvolution: a 3 x 3 convolution with attention between pixels beside it (Bello 2019, arXiv
// 1904.09925), over the edges that a source chooses.
//
//   out = [conv(x), W_o attention(x)];   q, k, v = 1 x 1 convolutions of x
//   s_ij = q_i . (k_j + c[x_j - x_i + W - 1] + r[y_j - y_i + H - 1]) / sqrt(D)
//
// The tables c and r are shared by the heads. With a stride, attention reads a 3 x 3 mean of x. No
// convolution has a bias.
//
// Relative positions are folded into queries and keys (src/attention/grid_positions.h), so every kernel of
// edge_attention computes these scores. On CUDA their width D + H + W has to fit 128, from which on the
// reference computes them: pictures of up to 54 x 54 pixels with heads of 20.
#pragma once

#include <edgewise/attention/self_attention.h>
#include <edgewise/edges/pixel_grid.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>

namespace edgewise {

struct AugmentedConvolutionOptions {
  int64_t in_channels = 0;
  int64_t out_channels = 0;  // of convolution and attention together
  int64_t stride = 1;
  int64_t heads = 8;
  int64_t key_channels = 0;    // d_k, over all heads
  int64_t value_channels = 0;  // d_v, over all heads
  PixelGrid grid = {};         // of the output
  EdgeSourcePtr source;        // null: dense attention
};

struct AugmentedOutput {
  at::Tensor x;               // [B, out_channels, rows, columns]
  AttentionOutput attention;  // without its output
};

class AugmentedConvolutionImpl : public torch::nn::Module {
 public:
  explicit AugmentedConvolutionImpl(AugmentedConvolutionOptions options);

  AugmentedOutput forward(const at::Tensor& x, const RandomStream& random = {}, bool keep_edges = false);
  void reset_parameters();

  AugmentedConvolutionOptions options;
  torch::nn::Conv2d conv{nullptr}, qkv{nullptr}, out{nullptr};
  at::Tensor column_table, row_table;  // c [2 columns - 1, D], r [2 rows - 1, D]

 private:
  at::Tensor marks_, waves_;  // of the grid, in the order of its tokens; on the device of the last call
};
TORCH_MODULE(AugmentedConvolution);

}  // namespace edgewise
