// Batch normalisation, and convolutions that may have attention beside them.
#include <edgewise/models/image_network.h>

#include <torch/nn/init.h>
#include <torch/types.h>

namespace edgewise {

BatchNormImpl::BatchNormImpl(int64_t channels) {
  weight = register_parameter("weight", torch::ones({channels}));
  bias = register_parameter("bias", torch::zeros({channels}));
  running_mean = register_buffer("running_mean", torch::zeros({channels}));
  running_var = register_buffer("running_var", torch::ones({channels}));
}

at::Tensor BatchNormImpl::forward(const at::Tensor& x) {
  constexpr double kMomentum = 0.1, kEps = 1e-5;
  return at::batch_norm(x, weight, bias, running_mean, running_var, is_training(), kMomentum, kEps,
                        /*cudnn_enabled=*/true);
}

ImageConvolutionImpl::ImageConvolutionImpl(int64_t in, int64_t out, int64_t stride) {
  plain = register_module(
      "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)));
}

ImageConvolutionImpl::ImageConvolutionImpl(AugmentedConvolutionOptions options) {
  augmented = register_module("augmented", AugmentedConvolution(std::move(options)));
}

at::Tensor ImageConvolutionImpl::forward(const at::Tensor& x, ImagePass& pass) {
  if (augmented.is_empty()) return plain->forward(x);
  AugmentedOutput result = augmented->forward(x, pass.random, pass.keep_edges);
  if (pass.watch) pass.watch("layer " + std::to_string(pass.random.layer), result.x);
  ++pass.random.layer;
  const double tokens = static_cast<double>(augmented->options.grid.tokens());
  pass.pairs.push_back(static_cast<double>(x.size(0)) * tokens * tokens);
  pass.output.add(std::move(result.attention));
  return result.x;
}

}  // namespace edgewise
