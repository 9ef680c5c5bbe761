// The blocks of residual networks.
#pragma once

#include <edgewise/models/image_network.h>

namespace edgewise {

inline torch::nn::Conv2d image_convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

struct ImageBlockOptions {
  ResidualBlock block = ResidualBlock::kWide;
  int64_t in = 0, out = 0;  // channels
  int64_t stride = 1;
  double dropout = 0;
  // The augmented 3 x 3 convolution, but for its channels and stride; none: a plain one.
  std::optional<AugmentedConvolutionOptions> augmented;
};
ImageBlockPtr make_image_block(const ImageBlockOptions& options);

// F of the 3 x 3 convolution that may be augmented: that of the block, of bottlenecks a quarter of it.
int64_t inner_channels(ResidualBlock block, int64_t out);

}  // namespace edgewise
