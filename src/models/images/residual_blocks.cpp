#include "models/images/residual_blocks.h"

#include <torch/nn/functional.h>
#include <torch/types.h>

namespace edgewise {
namespace {

ImageConvolution three_by_three(const ImageBlockOptions& options, int64_t in, int64_t out) {
  if (!options.augmented) return ImageConvolution(in, out, options.stride);
  AugmentedConvolutionOptions augmented = *options.augmented;
  augmented.in_channels = in;
  augmented.out_channels = out;
  augmented.stride = options.stride;
  return ImageConvolution(std::move(augmented));
}

class WideBlock : public ImageBlock {
 public:
  explicit WideBlock(const ImageBlockOptions& options) : dropout_(options.dropout) {
    bn1_ = register_module("bn1", BatchNorm(options.in));
    conv1_ = register_module("conv1", three_by_three(options, options.in, options.out));
    bn2_ = register_module("bn2", BatchNorm(options.out));
    conv2_ = register_module("conv2", image_convolution(options.out, options.out, 3, 1));
    if (options.in != options.out || options.stride != 1)
      shortcut_ = register_module("shortcut", image_convolution(options.in, options.out, 1, options.stride));
  }

  at::Tensor forward(const at::Tensor& x, ImagePass& pass) override {
    const at::Tensor ready = torch::relu(bn1_->forward(x));
    const at::Tensor inner = torch::relu(bn2_->forward(conv1_->forward(ready, pass)));
    const at::Tensor branch = conv2_->forward(torch::dropout(inner, dropout_, is_training()));
    // Where sizes differ both branches see the normalised x.
    return branch + (shortcut_.is_empty() ? x : shortcut_->forward(ready));
  }

 private:
  double dropout_;
  BatchNorm bn1_{nullptr}, bn2_{nullptr};
  ImageConvolution conv1_{nullptr};
  torch::nn::Conv2d conv2_{nullptr}, shortcut_{nullptr};
};

// What basic blocks and bottlenecks share: the branch that x takes around the convolutions.
class PostNormBlock : public ImageBlock {
 protected:
  void make_shortcut(const ImageBlockOptions& options) {
    if (options.in == options.out && options.stride == 1) return;
    shortcut_ = register_module("shortcut", image_convolution(options.in, options.out, 1, options.stride));
    shortcut_bn_ = register_module("shortcut_bn", BatchNorm(options.out));
  }
  at::Tensor around(const at::Tensor& x) {
    return shortcut_.is_empty() ? x : shortcut_bn_->forward(shortcut_->forward(x));
  }

 private:
  torch::nn::Conv2d shortcut_{nullptr};
  BatchNorm shortcut_bn_{nullptr};
};

class BasicBlock : public PostNormBlock {
 public:
  explicit BasicBlock(const ImageBlockOptions& options) {
    conv1_ = register_module("conv1", three_by_three(options, options.in, options.out));
    bn1_ = register_module("bn1", BatchNorm(options.out));
    conv2_ = register_module("conv2", image_convolution(options.out, options.out, 3, 1));
    bn2_ = register_module("bn2", BatchNorm(options.out));
    make_shortcut(options);
  }

  at::Tensor forward(const at::Tensor& x, ImagePass& pass) override {
    const at::Tensor inner = torch::relu(bn1_->forward(conv1_->forward(x, pass)));
    return torch::relu(bn2_->forward(conv2_->forward(inner)) + around(x));
  }

 private:
  ImageConvolution conv1_{nullptr};
  torch::nn::Conv2d conv2_{nullptr};
  BatchNorm bn1_{nullptr}, bn2_{nullptr};
};

class Bottleneck : public PostNormBlock {
 public:
  explicit Bottleneck(const ImageBlockOptions& options) {
    const int64_t inner = inner_channels(ResidualBlock::kBottleneck, options.out);
    conv1_ = register_module("conv1", image_convolution(options.in, inner, 1, 1));
    bn1_ = register_module("bn1", BatchNorm(inner));
    conv2_ = register_module("conv2", three_by_three(options, inner, inner));
    bn2_ = register_module("bn2", BatchNorm(inner));
    conv3_ = register_module("conv3", image_convolution(inner, options.out, 1, 1));
    bn3_ = register_module("bn3", BatchNorm(options.out));
    make_shortcut(options);
  }

  at::Tensor forward(const at::Tensor& x, ImagePass& pass) override {
    at::Tensor inner = torch::relu(bn1_->forward(conv1_->forward(x)));
    inner = torch::relu(bn2_->forward(conv2_->forward(inner, pass)));
    return torch::relu(bn3_->forward(conv3_->forward(inner)) + around(x));
  }

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv3_{nullptr};
  ImageConvolution conv2_{nullptr};
  BatchNorm bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
};

}  // namespace

int64_t inner_channels(ResidualBlock block, int64_t out) {
  return block == ResidualBlock::kBottleneck ? out / 4 : out;
}

ImageBlockPtr make_image_block(const ImageBlockOptions& options) {
  switch (options.block) {
    case ResidualBlock::kWide:
      return std::make_shared<WideBlock>(options);
    case ResidualBlock::kBasic:
      return std::make_shared<BasicBlock>(options);
    case ResidualBlock::kBottleneck:
      return std::make_shared<Bottleneck>(options);
  }
  TORCH_CHECK(false, "make_image_block: unknown kind of block");
}

}  // namespace edgewise
