// What a model does to its states around attention, on the CPU: equal to torch's operations.
#include "ops/layers/state_rows.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace edgewise::ops {
namespace {

at::Tensor leaf(at::IntArrayRef shape) {
  return torch::randn(shape, at::kDouble).requires_grad_();
}

TEST(StateRows, LinearTakesRowsOfAnyShape) {
  const at::Tensor weight = leaf({5, 8}), bias = leaf({5});
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{8}, {3, 8}, {2, 3, 8}, {2, 3, 4, 8}, {0, 3, 8}}) {
    const at::Tensor x = leaf(shape), expected = at::matmul(x, weight.t()) + bias;
    EXPECT_TRUE(at::allclose(ops::linear(x, weight, bias), expected)) << x.dim();
    EXPECT_TRUE(at::allclose(ops::linear(x, weight), at::matmul(x, weight.t()))) << x.dim();
  }
  const at::Tensor turned = leaf({8, 3, 2}).transpose(0, 2);  // [2, 3, 8], not contiguous
  EXPECT_TRUE(at::allclose(ops::linear(turned, weight, bias), at::matmul(turned, weight.t()) + bias));
}

TEST(StateRows, EmbeddingAddsPlacesAndDrops) {
  const at::Tensor table = leaf({9, 6}), places = leaf({20, 6});
  const at::Tensor tokens = torch::randint(9, {4, 7}, at::kLong),
                   positions = torch::randint(20, {4, 7}, at::kLong);
  const at::Tensor words = at::embedding(table, tokens);
  EXPECT_TRUE(
      embed({.tokens = tokens, .table = table, .positions = {}, .places = {}}, 0.5, false).equal(words));
  EXPECT_TRUE(embed({.tokens = tokens, .table = table, .positions = {}, .places = places}, 0, true)
                  .equal(words + places.slice(0, 0, 7)));
  EXPECT_TRUE(embed({.tokens = tokens, .table = table, .positions = positions, .places = places}, 0, true)
                  .equal(words + at::embedding(places, positions)));
  const at::Tensor dropped =
      embed({.tokens = tokens, .table = table, .positions = {}, .places = {}}, 0.5, true);
  const at::Tensor kept = dropped != 0;
  EXPECT_TRUE(at::allclose(dropped, words * 2 * kept));
  EXPECT_TRUE(kept.any().item<bool>() && !kept.all().item<bool>());
}

TEST(StateRows, MaskedNormsAreZeroWhateverTheyHeld) {
  const at::Tensor weight = leaf({6}), bias = leaf({6}), mask = torch::tensor({true, false, true});
  at::Tensor x = torch::randn({2, 3, 6}, at::kDouble);
  x.select(1, 1).fill_(INFINITY);
  const at::Tensor y = layer_norm(x, weight, bias, 1e-5, NormOutput::kFull, mask.expand({2, 3}));
  EXPECT_EQ(y.select(1, 1).abs().sum().item<double>(), 0);
  const at::Tensor first = x.select(1, 0);
  EXPECT_TRUE(at::allclose(y.select(1, 0), at::layer_norm(first, {6}, weight, bias, 1e-5)));
}

}  // namespace
}  // namespace edgewise::ops
