// Attention beside convolutions: relative positions against golden values and a plain reference pair by pair,
// dense against every edge, and what the layer learns through.
#include <edgewise/attention/augmented_convolution.h>

#include <edgewise/edges/grid_edges.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/edges/sac_edges.h>
#include <edgewise/edges/sbm_edges.h>
#include <edgewise/edges/square_edges.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "attention/grid_positions.h"
#include "kit/message_of.h"

namespace edgewise {
namespace {

// Unscaled sums of both terms, of 2 x 3 pixels and one head of width 2: q = 0.1 (0 .. 11), tables counted up
// from 1 by 0.01 and from -1 by 0.02.
TEST(RelativePositions, AreTheGoldenOnes) {
  const auto wide = torch::kDouble;
  const at::Tensor query = (torch::arange(12, wide) * 0.1).view({1, 1, 2, 3, 2}),
                   columns = (1 + torch::arange(10, wide) * 0.01).view({5, 2}),
                   rows = (-1 + torch::arange(6, wide) * 0.02).view({3, 2});
  const at::Tensor terms = position_terms(query, columns, rows).view({6, 5});
  const at::Tensor sums = terms.matmul(position_marks({2, 3, 1}, wide).t());  // [6, 6]
  const at::Tensor golden = torch::tensor({{.011, .013, .015, .015, .017, .019},
                                           {.039, .049, .059, .059, .069, .079},
                                           {.033, .075, .117, .117, .159, .201}},
                                          wide);
  EXPECT_TRUE(torch::allclose(sums.index_select(0, torch::tensor({0, 1, 5})), golden, 0, 1e-12)) << sums;
}

AugmentedConvolutionOptions small_options(int64_t patch = 1) {
  AugmentedConvolutionOptions options;
  options.in_channels = 5;
  options.out_channels = 10;
  options.heads = 2;
  options.key_channels = 6;
  options.value_channels = 4;
  options.grid = {8, 4, patch};
  return options;
}

// The layer in words: loops over pairs of pixels, of those that `allowed` [H, N, N] has; tokens row by row.
at::Tensor plain_layer(AugmentedConvolutionImpl& layer, const at::Tensor& x, const at::Tensor& allowed) {
  namespace F = torch::nn::functional;
  const auto& o = layer.options;
  const at::Tensor convolved =
      F::conv2d(x, layer.conv->weight, F::Conv2dFuncOptions().padding(1).stride(o.stride));
  at::Tensor seen = x;
  if (o.stride > 1)
    seen = F::avg_pool2d(x, F::AvgPool2dFuncOptions(3).stride(o.stride).padding(1).count_include_pad(false));
  const at::Tensor all = F::conv2d(seen, layer.qkv->weight);
  const int64_t rows = o.grid.rows, columns = o.grid.columns, count = rows * columns,
                dim = o.key_channels / o.heads, value_dim = o.value_channels / o.heads;
  at::Tensor mixed = torch::zeros({x.size(0), o.value_channels, rows, columns}, x.options());
  for (int64_t b = 0; b < x.size(0); ++b)
    for (int64_t h = 0; h < o.heads; ++h) {
      const auto pixel = [&](int64_t first, int64_t width, int64_t n) {
        return all[b].narrow(0, first + h * width, width).select(1, n / columns).select(1, n % columns);
      };
      for (int64_t i = 0; i < count; ++i) {
        std::vector<at::Tensor> scores, values;
        for (int64_t j = 0; j < count; ++j) {
          if (!allowed[h][i][j].item<bool>()) continue;
          const int64_t right = j % columns - i % columns, down = j / columns - i / columns;
          const at::Tensor toward = pixel(o.key_channels, dim, j) + layer.column_table[right + columns - 1] +
                                    layer.row_table[down + rows - 1];
          scores.push_back(pixel(0, dim, i).dot(toward) / std::sqrt(static_cast<double>(dim)));
          values.push_back(pixel(2 * o.key_channels, value_dim, j));
        }
        if (scores.empty()) continue;
        const at::Tensor weights = torch::stack(scores).softmax(0);
        mixed[b]
            .narrow(0, h * value_dim, value_dim)
            .select(1, i / columns)
            .select(1, i % columns)
            .copy_(weights.matmul(torch::stack(values)));
      }
    }
  return torch::cat({convolved, F::conv2d(mixed, layer.out->weight)}, 1);
}

at::Tensor every_pair(const AugmentedConvolutionOptions& o) {
  return torch::ones({o.heads, o.grid.tokens(), o.grid.tokens()}, torch::kBool);
}

TEST(AugmentedConvolution, IsThePlainOne) {
  torch::NoGradGuard no_grad;
  for (const int64_t stride : {1, 2}) {
    torch::manual_seed(stride);
    AugmentedConvolutionOptions options = small_options();
    options.stride = stride;
    AugmentedConvolution layer(options);
    layer->to(torch::kDouble);
    const at::Tensor x = torch::randn({2, 5, 8 * stride, 4 * stride}, torch::kDouble);
    EXPECT_TRUE(
        torch::allclose(layer->forward(x).x, plain_layer(*layer, x, every_pair(options)), 1e-9, 1e-10));
  }
}

TEST(AugmentedConvolution, OverAWindowIsThePlainOneOverIt) {
  torch::NoGradGuard no_grad;
  torch::manual_seed(7);
  for (const int64_t unit : {1, 16}) {
    AugmentedConvolutionOptions options = small_options(unit == 16 ? 4 : 1);
    const auto source = std::make_shared<GridWindowEdges>(options.grid, unit == 16 ? 0 : 1, unit);
    options.source = source;
    AugmentedConvolution layer(options);
    layer->to(torch::kDouble);
    const at::Tensor x = torch::randn({2, 5, 8, 4}, torch::kDouble);
    // What the source allows, brought from the order of tokens into rows.
    const at::Tensor any = torch::randn({1, 2, 32, 3});
    const at::Tensor mask =
        source->choose({any, any, std::nullopt, false, RandomStream{}}).edges.to_mask()[0];
    const at::Tensor places = grid_places(options.grid),
                     order = places.select(1, 0) * 4 + places.select(1, 1);
    const at::Tensor back = order.argsort();  // the token of every pixel
    const at::Tensor allowed = mask.index_select(1, back).index_select(2, back);
    const AugmentedOutput found = layer->forward(x);
    EXPECT_TRUE(torch::allclose(found.x, plain_layer(*layer, x, allowed), 1e-6, 1e-6)) << unit;
    EXPECT_NEAR(found.attention.density.mean().item<double>(), mask.to(torch::kDouble).mean().item<double>(),
                1e-9);
  }
}

// The same function and the same gradients, whoever computes it.
TEST(AugmentedConvolution, DenseIsEveryEdge) {
  for (const int64_t unit : {1, 16}) {
    std::vector<at::Tensor> results;
    std::vector<std::vector<at::Tensor>> gradients;
    for (const bool dense : {true, false}) {
      torch::manual_seed(3);
      AugmentedConvolutionOptions options = small_options(unit == 16 ? 4 : 1);
      if (!dense) options.source = std::make_shared<FullEdges>(unit);
      AugmentedConvolution layer(options);
      torch::manual_seed(4);
      const at::Tensor x = torch::randn({3, 5, 8, 4}).requires_grad_();
      const AugmentedOutput found = layer->forward(x);
      EXPECT_EQ(found.attention.edge_count.item<int64_t>(), 3 * 2 * 32 * 32);
      EXPECT_EQ(found.attention.density.min().item<double>(), 1);
      (found.x * torch::randn_like(found.x)).sum().backward();
      results.push_back(found.x);
      gradients.push_back({x.grad()});
      for (const auto& item : layer->named_parameters()) gradients.back().push_back(item.value().grad());
    }
    EXPECT_TRUE(torch::allclose(results[0], results[1], 1e-4, 1e-5));
    ASSERT_EQ(gradients[0].size(), 6u);
    for (size_t n = 0; n < 6; ++n)
      EXPECT_TRUE(torch::allclose(gradients[0][n], gradients[1][n], 1e-3, 1e-4)) << n << ", unit " << unit;
  }
}

// Learners choose, and hear of it.
TEST(AugmentedConvolution, TeachesWhoeverChoosesItsEdges) {
  for (const int64_t unit : {1, 16})
    for (const bool sbm : {true, false}) {
      torch::manual_seed(11);
      AugmentedConvolutionOptions options = small_options(unit == 16 ? 4 : 1);
      if (sbm) {
        SbmEdgesOptions of(2, 3);
        of.clusters = 8;
        of.unit = unit;
        of.initial_density = 0.5;
        options.source = SbmEdges(of).ptr();
      } else {
        SacEdgesOptions of(2, 6);
        of.node_dim = 4;
        of.alpha = unit == 16 ? 1 : 4;
        of.distance = DistanceEncoding::kNone;
        options.source = SacEdges(of).ptr();
        if (unit == 16) options.source = std::make_shared<SquareEdges>(options.source);
      }
      AugmentedConvolution layer(options);
      const AugmentedOutput found = layer->forward(torch::randn({4, 5, 8, 4}), {.seed = 5});
      EXPECT_GT(found.attention.density.mean().item<double>(), 0.02);
      found.x.square().sum().backward();
      double moved = 0;
      for (const at::Tensor& parameter : options.source->parameters())
        if (parameter.grad().defined()) moved += parameter.grad().abs().sum().item<double>();
      EXPECT_GT(moved, 0) << (sbm ? "sbm" : "sac") << " in units of " << unit;
      EXPECT_GT(layer->row_table.grad().abs().sum().item<double>(), 0);
    }
}

TEST(AugmentedConvolution, MistakesAreExplained) {
  const auto message = [](auto change) {
    return kit::message_of([&] {
      AugmentedConvolutionOptions options = small_options();
      change(options);
      AugmentedConvolution layer(options);
      layer->forward(torch::randn({1, 5, 8, 4}));
    });
  };
  EXPECT_NE(message([](auto& o) { o.key_channels = 7; }).find("that heads, 2, divide; got 7 and 4"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) { o.out_channels = 4; }).find("fewer value_channels than out_channels"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) { o.in_channels = 4; }).find("expected x [B, 4, rows, columns]"),
            std::string::npos);
  EXPECT_NE(message([](auto& o) { o.grid.rows = 9; }).find("an output of 9 x 4 pixels; got 8 x 4"),
            std::string::npos);
}

}  // namespace
}  // namespace edgewise
