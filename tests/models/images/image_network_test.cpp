// Residual networks and vision Transformers: counts of parameters, what they compute, and that they differ
// between training and evaluation by batch normalisation alone.
#include <edgewise/models/image_network.h>

#include <edgewise/edges/grid_edges.h>
#include <edgewise/edges/patterns.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <string>

#include "kit/message_of.h"

namespace edgewise {
namespace {

int64_t count(const torch::nn::Module& model) {
  int64_t total = 0;
  for (const at::Tensor& parameter : model.parameters()) total += parameter.numel();
  return total;
}

int64_t wide_count(int64_t depth, int64_t widen, int64_t classes, bool augmented) {
  ResidualNetworkOptions options = wide_network(depth, widen);
  options.classes = classes;
  if (augmented) options.augmentation.emplace();
  return count(*ResidualNetwork(options));
}

TEST(ParameterCount, OfWideNetworks) {
  EXPECT_EQ(wide_count(28, 10, 100, false), 36'536'884);
  EXPECT_EQ(wide_count(28, 2, 10, false), 1'467'610);
  EXPECT_EQ(wide_count(28, 4, 10, false), 5'849'050);
}

TEST(ParameterCount, OfAugmentedWideNetworks) {
  EXPECT_EQ(wide_count(28, 2, 10, true), 1'686'522);
  EXPECT_EQ(wide_count(28, 4, 10, true), 6'151'930);
  EXPECT_EQ(wide_count(28, 10, 100, true), 36'312'660) << "36.31 M of the paper's shares, 36.2 M as it says";
}

int64_t residual_count(int64_t depth, ImageStem stem, int64_t classes) {
  ResidualNetworkOptions options = residual_network(depth, stem);
  options.classes = classes;
  if (stem == ImageStem::kLarge) options.rows = options.columns = 224;
  return count(*ResidualNetwork(options));
}

// Those of torchvision's models; with the small stem of the usual one for CIFAR.
TEST(ParameterCount, OfResidualNetworks) {
  EXPECT_EQ(residual_count(18, ImageStem::kLarge, 1000), 11'689'512);
  EXPECT_EQ(residual_count(34, ImageStem::kLarge, 1000), 21'797'672);
  EXPECT_EQ(residual_count(50, ImageStem::kLarge, 1000), 25'557'032);
  EXPECT_EQ(residual_count(18, ImageStem::kSmall, 10), 11'173'962);
}

Batch pictures(int64_t items, int64_t rows, int64_t columns) {
  Batch batch;
  batch.towers.push_back({.features = torch::randn({items, rows * columns, 3})});
  batch.labels = torch::zeros({items}, torch::kLong);
  return batch;
}

ResidualNetworkOptions tiny(bool augmented, ImageEdgeFactory edges = {}, int64_t patch = 1) {
  ResidualNetworkOptions options = wide_network(10, 1);
  options.rows = options.columns = 16;
  options.classes = 5;
  if (augmented) {
    options.augmentation.emplace();
    options.augmentation->heads = 2;
    options.augmentation->least_head_dim = 4;
    options.augmentation->patch = patch;
    options.augmentation->edges = std::move(edges);
  }
  return options;
}

// The wide network in words.
TEST(ResidualNetwork, IsTheWideOneOfThePaper) {
  torch::manual_seed(1);
  torch::NoGradGuard no_grad;
  ResidualNetwork model(tiny(false));
  for (const at::Tensor& parameter : model->parameters())  // no norm is what it was at the start
    if (parameter.dim() == 1) parameter.normal_(0.5, 0.3);
  model->eval();
  const Batch batch = pictures(2, 16, 16);
  const auto p = model->named_parameters();
  namespace F = torch::nn::functional;
  const auto conv = [&](const at::Tensor& x, const std::string& name, int64_t stride) {
    const at::Tensor& weight = p[name + ".weight"];
    return F::conv2d(x, weight, F::Conv2dFuncOptions().stride(stride).padding(weight.size(2) / 2));
  };
  const auto ready = [&](const at::Tensor& x, const std::string& name) {  // means 0 and deviations 1
    const auto channel = [&](const char* what) { return p[name + what].view({1, -1, 1, 1}); };
    return torch::relu(x / std::sqrt(1 + 1e-5) * channel(".weight") + channel(".bias"));
  };
  at::Tensor x = conv(batch.towers[0].features.transpose(1, 2).reshape({2, 3, 16, 16}), "stem", 1);
  for (int64_t stage = 0; stage < 3; ++stage) {
    const std::string name = "stage" + std::to_string(stage) + "_block0.";
    const at::Tensor seen = ready(x, name + "bn1");
    const int64_t stride = stage == 0 ? 1 : 2;
    const at::Tensor branch =
        conv(ready(conv(seen, name + "conv1.conv", stride), name + "bn2"), name + "conv2", 1);
    x = branch + (stage == 0 ? x : conv(seen, name + "shortcut", stride));
  }
  const at::Tensor logits = F::linear(ready(x, "norm").mean({2, 3}), p["head.weight"], p["head.bias"]);
  const ModelOutput found = model->forward({.batch = batch});
  EXPECT_TRUE(torch::allclose(found.logits, logits, 1e-4, 1e-4));
  EXPECT_EQ(found.edge_count.item<int64_t>(), 0);
  EXPECT_EQ(found.densities.sum().item<double>(), 0);
}

TEST(ResidualNetwork, EveryKindComputesAndLearns) {
  const auto window = [](const ImageEdgePlace& place) {
    return std::make_shared<GridWindowEdges>(place.grid, 1, place.grid.patch == 4 ? 16 : 1);
  };
  std::vector<ResidualNetworkOptions> all = {tiny(false), tiny(true), tiny(true, window),
                                             tiny(true, window, 4)};
  for (const int64_t depth : {18, 34, 50}) {
    all.push_back(residual_network(depth, depth == 34 ? ImageStem::kLarge : ImageStem::kSmall));
    all.back().stem_channels = 16;
    all.back().channels = {16, 64, 64, 64};
    all.back().augmentation.emplace();
    all.back().augmentation->heads = 1;
    all.back().augmentation->first_stage = 1;
    all.back().rows = all.back().columns = 16;
  }
  for (const ResidualNetworkOptions& options : all) {
    torch::manual_seed(2);
    ResidualNetwork model(options);
    const ModelOutput output = model->forward({.batch = pictures(3, 16, 16)});
    EXPECT_EQ(output.logits.sizes(), (std::vector<int64_t>{3, options.classes}));
    EXPECT_EQ(output.layer_pairs.size(0), output.densities.size(0));
    output.logits.square().sum().backward();
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    }
  }
}

TEST(ResidualNetwork, LayersOfAttentionHaveTheirSizes) {
  std::vector<ImageEdgePlace> places;
  ResidualNetwork model(tiny(true, [&](const ImageEdgePlace& place) {
    places.push_back(place);
    return std::make_shared<FullEdges>();
  }));
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[0].grid, (PixelGrid{16, 16, 1}));
  EXPECT_EQ(places[2].grid, (PixelGrid{4, 4, 1}));
  EXPECT_EQ(places[2].layer, 2);
  EXPECT_EQ(places[2].head_dim, 6) << "a fifth of 64 channels, over two heads";
  const ModelOutput output = model->forward({.batch = pictures(2, 16, 16), .keep_edges = true});
  EXPECT_TRUE(torch::equal(output.layer_pairs,
                           torch::tensor({2. * 256 * 256, 2. * 64 * 64, 2. * 16 * 16}, torch::kDouble)));
  EXPECT_EQ(output.edge_count.item<int64_t>(), 2 * 2 * (256 * 256 + 64 * 64 + 16 * 16));
  EXPECT_EQ(output.edges.size(), 3u);
}

TEST(ResidualNetwork, EvaluationDependsOnNoBatchMates) {
  torch::manual_seed(6);
  ResidualNetwork model(tiny(true));
  for (int step = 0; step < 3; ++step) model->forward({.batch = pictures(8, 16, 16)});  // running means
  model->eval();
  torch::NoGradGuard no_grad;
  const Batch batch = pictures(3, 16, 16);
  const at::Tensor together = model->forward({.batch = batch}).logits;
  for (int64_t n = 0; n < 3; ++n) {
    const at::Tensor alone = model->forward({.batch = slice_items(batch, n, 1)}).logits;
    EXPECT_TRUE(torch::allclose(alone[0], together[n], 1e-4, 1e-5));
  }
  std::set<std::string> buffers;
  for (const auto& item : model->named_buffers()) buffers.insert(item.key());
  EXPECT_TRUE(buffers.contains("norm.running_mean"));
  EXPECT_EQ(buffers.size(), 2u * 7);
}

TEST(ImageTransformer, PatchesAreItsTokens) {
  torch::manual_seed(8);
  ImageTransformerOptions options;
  options.rows = 16, options.columns = 32, options.patch = 2;
  options.classifier.encoder.dim = 24;
  options.classifier.encoder.heads = 2;
  options.classifier.encoder.dropout = options.classifier.encoder.attention_dropout = 0;
  options.classifier.encoder.positions = Positions::kNone;
  options.classifier.classes = 5;
  ImageTransformer rows(options);
  options.token_patch = 4;
  ImageTransformer patches(options);
  {
    torch::NoGradGuard no_grad;
    const auto from = rows->named_parameters();
    for (auto& item : patches->named_parameters()) item.value().copy_(from[item.key()]);
  }
  const Batch batch = pictures(2, 16, 32);
  const ModelOutput a = rows->forward({.batch = batch}), b = patches->forward({.batch = batch});
  EXPECT_TRUE(torch::allclose(a.logits, b.logits, 1e-4, 1e-5)) << "without positions the order is no matter";
  EXPECT_EQ(a.layer_pairs[0].item<double>(), 2 * 128. * 128);
  const auto embedding = [&](ImageTransformer& model, const Batch& of) {  // [128, dim] of the first picture
    at::Tensor states;
    model->forward({.batch = of, .watch = [&](const std::string& name, const at::Tensor& value) {
                      if (name == "encoder.embedding") states = value.detach().clone();
                    }});
    return states[0];
  };
  Batch changed = batch.map([](const at::Tensor& tensor) { return tensor.clone(); });
  changed.towers[0].features[0][3 * 32 + 5] += 1;  // the pixel in row 3, column 5 is of token (1, 2)
  const auto moved = [&](ImageTransformer& model) {
    return (embedding(model, changed) - embedding(model, batch)).abs().sum(1).nonzero().flatten();
  };
  EXPECT_TRUE(torch::equal(moved(rows), torch::tensor({16 + 2}, torch::kLong)));
  EXPECT_TRUE(torch::equal(moved(patches), torch::tensor({4 + 2}, torch::kLong)));
}

TEST(ImageNetworks, MistakesAreExplained) {
  EXPECT_NE(kit::message_of([] { wide_network(27, 2); }).find("6 n + 4"), std::string::npos);
  EXPECT_NE(kit::message_of([] { residual_network(20, ImageStem::kSmall); }).find("18, 34 or 50"),
            std::string::npos);
  EXPECT_NE(kit::message_of([] { ResidualNetwork(tiny(true, {}, 3)); }).find("whole patches"),
            std::string::npos);
  ResidualNetwork model(tiny(false));
  EXPECT_NE(kit::message_of([&] { model->forward({.batch = pictures(1, 8, 8)}); }).find("[B, 16 * 16, 3]"),
            std::string::npos);
  ImageTransformerOptions options;
  options.patch = 5;
  EXPECT_NE(kit::message_of([&] { ImageTransformer{options}; }).find("whole patches of 5 x 5"),
            std::string::npos);
}

}  // namespace
}  // namespace edgewise
