// Embeddings, layer norm, products with a bias and residual sums on a GPU against torch's own operations.
#include <cmath>
#include <optional>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/autocast.h"
#include "kit/devices.h"
#include "kit/row_errors.h"
#include "ops/layers/cuda_rows.h"
#include "ops/layers/state_rows.h"

namespace edgewise::ops::rows_on_cuda {
namespace {

class CudaRows : public kit::CudaTest {};

at::Tensor leaf(at::IntArrayRef shape) {
  return torch::randn(shape, at::kCUDA).requires_grad_();
}
at::Tensor integers(int64_t below, at::IntArrayRef shape) {
  return torch::randint(below, shape, at::TensorOptions().device(at::kCUDA).dtype(at::kLong));
}
TEST_F(CudaRows, LayerNormIsTorchs) {
  for (const int64_t dim : {32, 64, 128, 256, 512, 1024}) {
    for (const int64_t rows : {1, 7, 1000, 20000}) {
      const at::Tensor x = torch::randn({rows, dim}, at::kCUDA).mul_(3).add_(2).requires_grad_();
      const at::Tensor weight = leaf({dim}), bias = leaf({dim});
      ASSERT_TRUE(cuda_takes_norm(x, weight, bias)) << dim;
      const at::Tensor y = layer_norm(x, weight, bias, 1e-5), grad = torch::randn_like(y);
      const auto grads = torch::autograd::grad({y}, {x, weight, bias}, {grad});
      const at::Tensor x64 = x.detach().to(at::kDouble).requires_grad_(),
                       weight64 = weight.detach().to(at::kDouble).requires_grad_(),
                       bias64 = bias.detach().to(at::kDouble).requires_grad_();
      const at::Tensor y64 = at::layer_norm(x64, {dim}, weight64, bias64, 1e-5);
      const auto grads64 = torch::autograd::grad({y64}, {x64, weight64, bias64}, {grad.to(at::kDouble)});
      const auto near = [&](const at::Tensor& a, const at::Tensor& b) {
        return (a.to(at::kDouble) - b).abs().max().item<double>() / (1 + b.abs().max().item<double>());
      };
      EXPECT_LT(near(y, y64), 2e-6) << dim << " " << rows;
      for (size_t n = 0; n < 3; ++n)
        EXPECT_LT(near(grads[n], grads64[n]), 2e-6) << dim << " " << rows << " " << n;
    }
  }
}

TEST_F(CudaRows, LayerNormForProductsWritesBf16UnderAutocastAlone) {
  const at::Tensor x = leaf({30, 64}), weight = leaf({64}), bias = leaf({64});
  EXPECT_EQ(layer_norm(x, weight, bias, 1e-5, NormOutput::kForProducts).scalar_type(), at::kFloat);
  std::optional<kit::CudaAutocast> autocast(std::in_place);
  const at::Tensor narrow = layer_norm(x, weight, bias, 1e-5, NormOutput::kForProducts),
                   full = layer_norm(x, weight, bias, 1e-5);
  autocast.reset();
  EXPECT_EQ(full.scalar_type(), at::kFloat);
  EXPECT_TRUE(narrow.equal(full.to(at::kBFloat16)));
  const at::Tensor grad = torch::randn_like(narrow);
  const auto narrow_grads = torch::autograd::grad({narrow}, {x, weight, bias}, {grad});
  const auto full_grads = torch::autograd::grad({full}, {x, weight, bias}, {grad.to(at::kFloat)});
  for (size_t n = 0; n < 3; ++n) EXPECT_TRUE(narrow_grads[n].equal(full_grads[n])) << n;
}

TEST_F(CudaRows, LayerNormLeavesNothingOfMaskedRows) {
  const at::Tensor x = leaf({6, 50, 64}), weight = leaf({64}), bias = leaf({64});
  const at::Tensor mask = torch::rand({6, 50}, at::kCUDA) > 0.3;
  const at::Tensor plain = layer_norm(x, weight, bias, 1e-5).masked_fill(mask.logical_not().unsqueeze(-1), 0);
  const at::Tensor grad = torch::randn_like(plain);
  const auto expected = torch::autograd::grad({plain}, {x, weight, bias}, {grad});
  const at::Tensor spoilt =
      x.detach().masked_fill(mask.logical_not().unsqueeze(-1), INFINITY).requires_grad_();
  for (const at::Tensor& given : {x, spoilt}) {
    const at::Tensor y = layer_norm(given, weight, bias, 1e-5, NormOutput::kFull, mask);
    EXPECT_TRUE(y.equal(plain));
    const auto grads = torch::autograd::grad({y}, {given, weight, bias}, {grad});
    for (size_t n = 0; n < 3; ++n) EXPECT_TRUE(grads[n].equal(expected[n])) << n;
  }
}

TEST_F(CudaRows, LinearIsTorchs) {
  for (const bool narrow : {false, true}) {
    for (const int64_t out : {8, 64, 192, 2056}) {
      for (const bool input_is_narrow : {false, true}) {
        if (input_is_narrow && !narrow) continue;
        const auto type = input_is_narrow ? at::kBFloat16 : at::kFloat;
        const at::Tensor x = torch::randn({3, 701, 64}, at::kCUDA).to(type).requires_grad_();
        const at::Tensor weight = leaf({out, 64}), bias = leaf({out});
        std::optional<kit::CudaAutocast> autocast;
        if (narrow) autocast.emplace();
        ASSERT_TRUE(cuda_takes_linear(x, weight, bias));
        const at::Tensor y = linear(x, weight, bias);
        autocast.reset();
        EXPECT_EQ(y.scalar_type(), narrow ? at::kBFloat16 : at::kFloat);
        const at::Tensor grad = torch::randn_like(y);
        const auto grads = torch::autograd::grad({y}, {x, weight, bias}, {grad});
        const at::Tensor x64 = x.detach().to(at::kDouble).requires_grad_(),
                         weight64 = weight.detach().to(at::kDouble).requires_grad_(),
                         bias64 = bias.detach().to(at::kDouble).requires_grad_();
        const at::Tensor y64 = at::linear(x64, weight64, bias64);
        const auto grads64 = torch::autograd::grad({y64}, {x64, weight64, bias64}, {grad.to(at::kDouble)});
        const double bound = narrow ? 6e-3 : 2e-6;
        EXPECT_TRUE(kit::rows_agree(y, y64, bound)) << out;
        EXPECT_TRUE(kit::rows_agree(grads[0], grads64[0], bound)) << out;
        EXPECT_TRUE(kit::rows_agree(grads[1], grads64[1], bound)) << out;
        EXPECT_TRUE(kit::rows_agree(grads[2], grads64[2], 2e-6)) << out;  // a sum in fp32 of what came
        EXPECT_EQ(grads[0].scalar_type(), type);
        EXPECT_EQ(grads[1].scalar_type(), at::kFloat);
      }
    }
  }
  EXPECT_FALSE(cuda_takes_linear(leaf({3, 64}), leaf({10, 64}), leaf({10})));
  EXPECT_EQ(linear(leaf({3, 64}), leaf({10, 64}), leaf({10})).size(1), 10);
}

// A gradient that is spread over rows or lies apart, parameters that learn nothing, outputs that are changed
// in place.
TEST_F(CudaRows, LinearTakesAnyGradientAndFrozenParameters) {
  const at::Tensor x = leaf({4, 30, 64}), weight = leaf({32, 64}), bias = leaf({32});
  const at::Tensor apart = torch::randn({4, 32, 30}, at::kCUDA).transpose(1, 2),
                   spread = torch::randn({4, 1, 32}, at::kCUDA).expand({4, 30, 32});
  for (const at::Tensor& grad : {apart, spread}) {
    const auto found = torch::autograd::grad({linear(x, weight, bias)}, {x, weight, bias}, {grad});
    const auto expected = torch::autograd::grad({at::linear(x, weight, bias)}, {x, weight, bias}, {grad});
    for (size_t n = 0; n < 3; ++n) EXPECT_TRUE(kit::rows_agree(found[n], expected[n], 1e-5)) << n;
  }
  const at::Tensor frozen = weight.detach();
  const auto found = torch::autograd::grad({linear(x, frozen, bias).sum()}, {bias});
  EXPECT_TRUE(found[0].equal(at::full_like(bias, 120)));
  at::Tensor y = linear(x, weight, bias);
  y.add_(1);
  EXPECT_EQ(torch::autograd::grad({y.sum()}, {x})[0].sizes(), x.sizes());
  EXPECT_THROW(torch::autograd::grad({linear(x, weight, bias).sum()}, {x}, {}, true, /*create_graph=*/true),
               c10::NotImplementedError);
}

TEST_F(CudaRows, EmbeddingTakesSlicesFrozenTablesAndNoTokens) {
  const at::Tensor table = leaf({9, 64}), places = leaf({50, 64}), tokens = integers(9, {3, 20});
  const EmbedInput input{
      .tokens = tokens, .table = table.detach(), .positions = {}, .places = places.slice(0, 7, 27)};
  ASSERT_TRUE(cuda_takes_embed(input));
  const at::Tensor x = embed(input, 0, true);
  EXPECT_TRUE(x.equal(at::embedding(table, tokens) + places.slice(0, 7, 27)));
  const at::Tensor grad = torch::autograd::grad({x.sum()}, {places})[0];
  EXPECT_TRUE(grad.slice(0, 7, 27).equal(at::full({20, 64}, 3, grad.options())));
  EXPECT_EQ(grad.count_nonzero().item<int64_t>(), 20 * 64);
  const at::Tensor none =
      embed({.tokens = integers(9, {0, 20}), .table = table, .positions = {}, .places = {}}, 0, true);
  EXPECT_EQ(none.sizes(), at::IntArrayRef({0, 20, 64}));
  EXPECT_EQ(torch::autograd::grad({none.sum()}, {table})[0].count_nonzero().item<int64_t>(), 0);
  EXPECT_FALSE(cuda_takes_embed(
      {.tokens = tokens, .table = table, .positions = torch::zeros({3, 20}, at::kLong), .places = places}));
  EXPECT_FALSE(cuda_takes_embed(
      {.tokens = tokens, .table = table, .positions = {}, .places = places.slice(0, 0, 10)}));
}

TEST_F(CudaRows, EmbeddingIsTorchs) {
  for (const int64_t dim : {24, 64, 136}) {
    for (const int64_t vocabulary : {5, 300, 1024}) {
      for (const bool has_positions : {false, true}) {
        const at::Tensor table = leaf({vocabulary, dim}), places = leaf({200, dim});
        const at::Tensor tokens = integers(vocabulary, {70, 131});
        EmbedInput input{.tokens = tokens, .table = table, .positions = {}, .places = places};
        if (has_positions) input.positions = integers(200, {70, 131});
        ASSERT_TRUE(cuda_takes_embed(input));
        const at::Tensor x = embed(input, 0, true), grad = torch::randn_like(x);
        const at::Tensor plain =
            at::embedding(table, tokens) +
            (has_positions ? at::embedding(places, input.positions) : places.slice(0, 0, 131));
        EXPECT_TRUE(x.equal(plain));
        const auto grads = torch::autograd::grad({x}, {table, places}, {grad});
        const auto wide = [&](const at::Tensor& like, const at::Tensor& index) {
          return at::zeros_like(like.detach(), at::kDouble)
              .index_add(0, index.flatten(), grad.view({-1, dim}).to(at::kDouble));
        };
        const at::Tensor counted =
            has_positions ? input.positions : torch::arange(131, tokens.options()).expand({70, 131});
        EXPECT_TRUE(kit::rows_agree(grads[0], wide(table, tokens), 1e-6)) << dim << " " << vocabulary;
        EXPECT_TRUE(kit::rows_agree(grads[1], wide(places, counted), 1e-6)) << dim << " " << vocabulary;
      }
    }
  }
  EXPECT_FALSE(cuda_takes_embed(
      {.tokens = integers(9, {2, 3}), .table = leaf({9, 42}), .positions = {}, .places = {}}));
}

TEST_F(CudaRows, EmbeddingsDropTheirShareAndRepeat) {
  constexpr double kP = 0.25;
  const at::Tensor table = torch::ones({7, 64}, at::kCUDA).requires_grad_();
  const EmbedInput input{.tokens = integers(7, {300, 400}), .table = table, .positions = {}, .places = {}};
  const auto draw = [&] {
    torch::manual_seed(3);
    const at::Tensor x = embed(input, kP, true);
    torch::manual_seed(4);
    const at::Tensor grad = torch::randn_like(x);
    return std::pair(x.detach(), torch::autograd::grad({x}, {table}, {grad})[0]);
  };
  const auto [x, grad] = draw();
  EXPECT_NEAR((x == 0).to(at::kDouble).mean().item<double>(), kP, 1e-3);
  EXPECT_LT((x.masked_select(x != 0) - 1 / (1 - kP)).abs().max().item<double>(), 1e-4);
  torch::manual_seed(4);
  const at::Tensor kept = torch::randn_like(x).to(at::kDouble) * x.to(at::kDouble);
  const at::Tensor expected =
      torch::zeros({7, 64}, kept.options()).index_add(0, input.tokens.flatten(), kept.view({-1, 64}));
  EXPECT_TRUE(kit::rows_agree(grad, expected, 1e-5));
  for (int again = 0; again < 5; ++again) {
    const auto [other, other_grad] = draw();
    EXPECT_TRUE(other.equal(x));
    EXPECT_TRUE(other_grad.equal(grad));
  }
  EXPECT_TRUE(embed(input, kP, false).equal(at::embedding(table, input.tokens)));
}

TEST_F(CudaRows, OtherTensorsGoToTorch) {
  const at::Tensor weight = leaf({64}), bias = leaf({64});
  EXPECT_FALSE(cuda_takes_norm(leaf({3, 48}), leaf({48}), leaf({48})));
  EXPECT_FALSE(cuda_takes_norm(leaf({64, 3}).t(), weight, bias));
  EXPECT_FALSE(cuda_takes_norm(leaf({3, 64}).to(at::kDouble), weight, bias));
  EXPECT_FALSE(cuda_takes_add(leaf({3, 64}), leaf({1, 64})));
  EXPECT_EQ(layer_norm(leaf({3, 48}), leaf({48}), leaf({48}), 1e-5).size(1), 48);
  EXPECT_EQ(layer_norm(torch::zeros({0, 64}, at::kCUDA), weight, bias, 1e-5).numel(), 0);
}

TEST_F(CudaRows, DroppedSumsKeepTheirShareAndTheirGradient) {
  constexpr double kP = 0.1;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = leaf({1 << 20 | 3}),
                     update = torch::rand({1 << 20 | 3}, at::kCUDA).add_(1).to(type).requires_grad_();
    const at::Tensor y = add_dropped(x, update, kP, true);
    const at::Tensor added = (y - x).detach(), kept = added.abs() > 0.5;
    const double share = kept.to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(share, 1 - kP, 5 * std::sqrt(kP * (1 - kP) / (1 << 20)) + 1e-5);
    const at::Tensor expected = (update.detach().to(at::kFloat) / (1 - kP)) * kept;
    EXPECT_LT((added - expected).abs().max().item<double>(), 1e-4);
    // Neighbours are dropped independently of each other.
    const at::Tensor dropped = kept.logical_not().to(at::kDouble);
    for (const int64_t lag : {1, 2, 8, 64}) {
      const double both = (dropped.slice(0, lag) * dropped.slice(0, 0, -lag)).mean().item<double>();
      EXPECT_NEAR(both, kP * kP, 5 * std::sqrt(kP * kP / (1 << 20))) << lag;
    }
    const at::Tensor grad = torch::randn_like(y);
    const auto grads = torch::autograd::grad({y}, {x, update}, {grad});
    EXPECT_TRUE(grads[0].equal(grad));
    EXPECT_EQ(grads[1].scalar_type(), type);
    const at::Tensor update_grad = (grad / (1 - kP) * kept).to(type);
    // Every number, but for its rounding: the kernel keeps a whole number of 65536 parts, and divides by
    // that.
    const at::Tensor wide = update_grad.to(at::kDouble);
    const double unit = type == at::kFloat ? 0x1p-16 : 0x1p-7;
    EXPECT_LE(((grads[1].to(at::kDouble) - wide).abs() - unit * wide.abs()).max().item<double>(), 0) << type;
    EXPECT_TRUE((grads[1] != 0).logical_and(kept.logical_not()).any().logical_not().item<bool>());
  }
}

TEST_F(CudaRows, DroppedSumsFollowTorchsGenerator) {
  const at::Tensor x = leaf({5, 64}), update = leaf({5, 64});
  const auto draw = [&] { return add_dropped(x, update, 0.5, true); };
  torch::manual_seed(9);
  const at::Tensor first = draw(), second = draw();
  torch::manual_seed(9);
  EXPECT_TRUE(draw().equal(first));
  EXPECT_TRUE(draw().equal(second));
  EXPECT_FALSE(first.equal(second));
  EXPECT_TRUE(add_dropped(x, update, 0.5, false).equal(x + update));
}

}  // namespace
}  // namespace edgewise::ops::rows_on_cuda
