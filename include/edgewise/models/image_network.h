// Networks for pictures: wide residual networks (WRN-d-k, arXiv 1605.07146), residual networks (ResNet-18, 34
// and 50, arXiv 1512.03385) and a small vision Transformer. The residual ones may have attention beside the
// first 3 x 3 convolution of their blocks (edgewise/attention/augmented_convolution.h).
//
//   wide:        x += conv(relu(bn(dropout(conv(relu(bn(x)))))))
//   basic:       x = relu(x + bn(conv(relu(bn(conv(x))))))
//   bottleneck:  x = relu(x + bn(1x1(relu(bn(3x3(relu(bn(1x1(x)))))))), with a stride in the 3 x 3
//
// A batch has pictures as features [B, H * W, 3], row by row.
#pragma once

#include <edgewise/attention/augmented_convolution.h>
#include <edgewise/models/classifier.h>
#include <edgewise/models/model.h>

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace edgewise {

// Batch normalisation with running statistics: in training over the items and places of a pass, in evaluation
// by the means that training has seen. Without torch's count of batches, which nothing reads.
class BatchNormImpl : public torch::nn::Module {
 public:
  explicit BatchNormImpl(int64_t channels);
  at::Tensor forward(const at::Tensor& x);  // [B, C, H, W]

  at::Tensor weight, bias, running_mean, running_var;  // [C]
};
TORCH_MODULE(BatchNorm);

// Where an augmented convolution asks for edges. Null: dense attention.
struct ImageEdgePlace {
  PixelGrid grid;
  int64_t heads = 0, head_dim = 0;
  int64_t layer = 0;  // counted over the network
};
using ImageEdgeFactory = std::function<EdgeSourcePtr(const ImageEdgePlace&)>;

// Attention beside convolutions. With the default shares d_k = 0.2 F and d_v = 0.1 F of F channels, as in the
// paper's experiments, both cut to a multiple of the heads.
struct ImageAugmentation {
  int64_t heads = 8;
  double key_share = 0.2, value_share = 0.1;
  int64_t least_head_dim = 20;  // of queries and keys
  int64_t first_stage = 0;      // from which on blocks are augmented
  int64_t patch = 1;            // PixelGrid::patch
  ImageEdgeFactory edges;
};

enum class ResidualBlock { kWide, kBasic, kBottleneck };
// kSmall: a 3 x 3 convolution. kLarge: 7 x 7 of stride 2, then the largest of 3 x 3 of stride 2 (ImageNet's).
enum class ImageStem { kSmall, kLarge };
ImageStem parse_image_stem(std::string_view name);  // "small" | "large"

struct ResidualNetworkOptions {
  int64_t rows = 32, columns = 32;  // of a picture
  int64_t classes = 10;
  ResidualBlock block = ResidualBlock::kWide;
  ImageStem stem = ImageStem::kSmall;
  int64_t stem_channels = 16;
  std::vector<int64_t> blocks;    // a stage each
  std::vector<int64_t> channels;  // of a stage's output, F
  double dropout = 0;             // between the convolutions of wide blocks
  std::optional<ImageAugmentation> augmentation;
};

// WRN-depth-widen: depth = 6 n + 4 with n blocks in each of three stages of 16, 32 and 64 times `widen`
// channels.
ResidualNetworkOptions wide_network(int64_t depth, int64_t widen);
// ResNet-18, 34 or 50.
ResidualNetworkOptions residual_network(int64_t depth, ImageStem stem);

// What a forward pass of an image network hands from layer to layer.
struct ImagePass {
  RandomStream random;
  bool keep_edges = false;
  ActivationWatcher watch = {};
  ModelOutput& output;
  std::vector<double>& pairs;  // that each layer of attention could have had
};

// A 3 x 3 convolution, with or without attention beside it.
class ImageConvolutionImpl : public torch::nn::Module {
 public:
  ImageConvolutionImpl(int64_t in, int64_t out, int64_t stride);
  explicit ImageConvolutionImpl(AugmentedConvolutionOptions options);
  at::Tensor forward(const at::Tensor& x, ImagePass& pass);

  torch::nn::Conv2d plain{nullptr};
  AugmentedConvolution augmented{nullptr};  // one of the two
};
TORCH_MODULE(ImageConvolution);

class ImageBlock : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x, ImagePass& pass) = 0;
};
using ImageBlockPtr = std::shared_ptr<ImageBlock>;

class ResidualNetworkImpl : public Model {
 public:
  explicit ResidualNetworkImpl(ResidualNetworkOptions options);
  ModelOutput forward(const ModelInput& input) override;  // logits [B, classes]

  ResidualNetworkOptions options;
  torch::nn::Conv2d stem{nullptr};
  BatchNorm norm{nullptr};  // behind the stem, or of wide networks behind the last block
  std::vector<ImageBlockPtr> blocks;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(ResidualNetwork);

struct ImageTransformerOptions {
  int64_t rows = 32, columns = 32;
  int64_t patch = 4;  // pixels of a token are patch x patch
  // Of the tokens: PixelGrid::patch, so that squares join neighbours.
  int64_t token_patch = 1;
  ClassifierOptions classifier;  // without vocabulary, features and max_length
};

// A vision Transformer: patches of pixels are the tokens of an Encoder, and their mean is classified.
class ImageTransformerImpl : public SequenceClassifierImpl {
 public:
  explicit ImageTransformerImpl(ImageTransformerOptions options);
  ModelOutput forward(const ModelInput& input) override;
  PixelGrid grid() const;  // of the tokens

  ImageTransformerOptions image_options;
};
TORCH_MODULE(ImageTransformer);

}  // namespace edgewise
