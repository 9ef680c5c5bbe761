#include <edgewise/models/image_network.h>

#include <cmath>

#include <torch/nn/functional.h>
#include <torch/nn/init.h>
#include <torch/types.h>

#include "models/images/residual_blocks.h"

namespace edgewise {
namespace {

// A share of F, cut to a multiple of the heads, and not below `least`.
int64_t share_of(int64_t channels, double share, int64_t heads, int64_t least) {
  const auto wanted = static_cast<int64_t>(share * static_cast<double>(channels) + 1e-9);
  return std::max(wanted / heads * heads, least);
}

AugmentedConvolutionOptions augmented_options(const ImageAugmentation& augmentation, int64_t channels,
                                              const PixelGrid& grid, int64_t layer) {
  const int64_t heads = augmentation.heads;
  AugmentedConvolutionOptions result;
  result.heads = heads;
  result.key_channels =
      share_of(channels, augmentation.key_share, heads, heads * augmentation.least_head_dim);
  result.value_channels = share_of(channels, augmentation.value_share, heads, heads);
  result.grid = grid;
  if (augmentation.edges)
    result.source = augmentation.edges(
        {.grid = grid, .heads = heads, .head_dim = result.key_channels / heads, .layer = layer});
  return result;
}

int64_t halved(int64_t size) {  // by a stride of 2
  return (size + 1) / 2;
}

}  // namespace

ImageStem parse_image_stem(std::string_view name) {
  if (name == "small") return ImageStem::kSmall;
  if (name == "large") return ImageStem::kLarge;
  TORCH_CHECK_VALUE(false, "stem: expected small or large; got '", name, "'");
}

ResidualNetworkOptions wide_network(int64_t depth, int64_t widen) {
  TORCH_CHECK_VALUE(
      depth >= 10 && (depth - 4) % 6 == 0 && widen > 0,
      "wide_network: expected a depth of 10, 16, 22, 28, ..., 6 n + 4, and a positive widen; got ", depth,
      " and ", widen);
  const int64_t count = (depth - 4) / 6;
  ResidualNetworkOptions options;
  options.blocks = {count, count, count};
  options.channels = {16 * widen, 32 * widen, 64 * widen};
  return options;
}

ResidualNetworkOptions residual_network(int64_t depth, ImageStem stem) {
  TORCH_CHECK_VALUE(depth == 18 || depth == 34 || depth == 50,
                    "residual_network: expected a depth of 18, 34 or 50; got ", depth);
  ResidualNetworkOptions options;
  options.stem = stem;
  options.stem_channels = 64;
  options.block = depth == 50 ? ResidualBlock::kBottleneck : ResidualBlock::kBasic;
  options.blocks = depth == 18 ? std::vector<int64_t>{2, 2, 2, 2} : std::vector<int64_t>{3, 4, 6, 3};
  const int64_t wider = depth == 50 ? 4 : 1;
  options.channels = {64 * wider, 128 * wider, 256 * wider, 512 * wider};
  return options;
}

ResidualNetworkImpl::ResidualNetworkImpl(ResidualNetworkOptions options_) : options(std::move(options_)) {
  const ResidualNetworkOptions& o = options;
  TORCH_CHECK_VALUE(o.rows > 0 && o.columns > 0 && o.classes > 1,
                    "ResidualNetwork: expected pictures with pixels and at least two classes; got ", o.rows,
                    " x ", o.columns, " and ", o.classes);
  TORCH_CHECK_VALUE(!o.blocks.empty() && o.blocks.size() == o.channels.size(),
                    "ResidualNetwork: expected blocks and channels for every stage; got ", o.blocks.size(),
                    " and ", o.channels.size());
  TORCH_CHECK_VALUE(o.dropout >= 0 && o.dropout < 1, "ResidualNetwork: expected dropout in [0, 1); got ",
                    o.dropout);
  const bool is_wide = o.block == ResidualBlock::kWide, is_large = o.stem == ImageStem::kLarge;
  stem = register_module("stem", image_convolution(3, o.stem_channels, is_large ? 7 : 3, is_large ? 2 : 1));
  norm = register_module("norm", BatchNorm(is_wide ? o.channels.back() : o.stem_channels));
  PixelGrid grid{o.rows, o.columns, o.augmentation ? o.augmentation->patch : 1};
  const auto halve = [&] { grid.rows = halved(grid.rows), grid.columns = halved(grid.columns); };
  if (is_large) halve(), halve();
  int64_t in = o.stem_channels, layer = 0;
  for (size_t stage = 0; stage < o.blocks.size(); ++stage) {
    for (int64_t index = 0; index < o.blocks[stage]; ++index) {
      ImageBlockOptions block{.block = o.block,
                              .in = in,
                              .out = o.channels[stage],
                              .stride = 1,
                              .dropout = o.dropout,
                              .augmented = std::nullopt};
      if (stage > 0 && index == 0) block.stride = 2, halve();
      if (o.augmentation && static_cast<int64_t>(stage) >= o.augmentation->first_stage)
        block.augmented =
            augmented_options(*o.augmentation, inner_channels(o.block, o.channels[stage]), grid, layer++);
      blocks.push_back(make_image_block(block));
      register_module("stage" + std::to_string(stage) + "_block" + std::to_string(index), blocks.back());
      in = o.channels[stage];
    }
  }
  TORCH_CHECK_VALUE(!o.augmentation || layer > 0, "ResidualNetwork: expected first_stage below ",
                    o.blocks.size(), ", the number of stages; got ",
                    o.augmentation ? o.augmentation->first_stage : 0);
  head = register_module("head", torch::nn::Linear(in, o.classes));
  for (const auto& module : modules(/*include_self=*/false))
    if (auto* const conv = dynamic_cast<torch::nn::Conv2dImpl*>(module.get()))
      torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
}

ModelOutput ResidualNetworkImpl::forward(const ModelInput& input) {
  TORCH_CHECK_VALUE(input.batch.towers.size() == 1 && input.batch.towers[0].features.defined(),
                    "ResidualNetwork: expected pictures as the features of one tower");
  const at::Tensor& features = input.batch.towers[0].features;
  TORCH_CHECK_VALUE(
      features.dim() == 3 && features.size(1) == options.rows * options.columns && features.size(2) == 3,
      "ResidualNetwork: expected pictures [B, ", options.rows, " * ", options.columns, ", 3]; got ",
      features.sizes());
  ModelOutput result;
  std::vector<double> pairs;
  ImagePass pass{.random = input.random,
                 .keep_edges = input.keep_edges,
                 .watch = input.watch,
                 .output = result,
                 .pairs = pairs};
  const bool is_wide = options.block == ResidualBlock::kWide;
  // Colours last in memory, as they come.
  at::Tensor x = features.view({features.size(0), options.rows, options.columns, 3}).permute({0, 3, 1, 2});
  x = stem->forward(x);
  if (!is_wide) x = torch::relu(norm->forward(x));
  if (options.stem == ImageStem::kLarge) x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
  for (size_t index = 0; index < blocks.size(); ++index) {
    x = blocks[index]->forward(x, pass);
    if (input.watch) input.watch("block " + std::to_string(index), x);
  }
  if (is_wide) x = torch::relu(norm->forward(x));
  result.logits = head->forward(x.mean({2, 3}));
  if (input.watch) input.watch("head", result.logits);
  if (pairs.empty()) {  // no attention: nothing of anything
    AttentionOutput nothing;
    nothing.density = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(x.device()));
    nothing.edge_count = at::zeros({}, at::kLong);
    result.add(std::move(nothing));
    pairs.push_back(1);
  }
  result.finish();
  result.layer_pairs = at::tensor(pairs, at::kDouble);
  if (result.penalty.defined()) result.tower_penalties.push_back(result.penalty);
  return result;
}

}  // namespace edgewise
