// Layer norm and residual sums on a GPU against torch's own operations.
#include <cmath>

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/devices.h"
#include "ops/cuda_rows.h"
#include "ops/state_rows.h"

namespace edgewise::ops {
namespace {

class CudaRows : public kit::CudaTest {};

at::Tensor leaf(at::IntArrayRef shape) {
  return torch::randn(shape, at::kCUDA).requires_grad_();
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
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
  const at::Tensor narrow = layer_norm(x, weight, bias, 1e-5, NormOutput::kForProducts),
                   full = layer_norm(x, weight, bias, 1e-5);
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  EXPECT_EQ(full.scalar_type(), at::kFloat);
  EXPECT_TRUE(narrow.equal(full.to(at::kBFloat16)));
  const at::Tensor grad = torch::randn_like(narrow);
  const auto narrow_grads = torch::autograd::grad({narrow}, {x, weight, bias}, {grad});
  const auto full_grads = torch::autograd::grad({full}, {x, weight, bias}, {grad.to(at::kFloat)});
  for (size_t n = 0; n < 3; ++n) EXPECT_TRUE(narrow_grads[n].equal(full_grads[n])) << n;
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
    EXPECT_LT((grads[1] - update_grad).abs().max().item<double>(), type == at::kFloat ? 1e-3 : 0.1);
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
}  // namespace edgewise::ops
