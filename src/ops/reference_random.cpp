// Philox in plain ATen: the same words as src/kernels/philox.h, on any device.
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <array>

#include "kernels/philox.h"
#include "ops/reference.h"

namespace edgewise::ops::reference {
namespace {

constexpr int64_t kLow = 0xFFFFFFFF;

// 32 x 32 -> 64 bits; int64 wraps, and masking after the shift recovers the unsigned halves.
at::Tensor high_half(const at::Tensor& product) {
  return product.bitwise_right_shift(32).bitwise_and(kLow);
}
at::Tensor low_half(const at::Tensor& product) {
  return product.bitwise_and(kLow);
}

}  // namespace

at::Tensor pair_words(const at::Tensor& head_keys, const EdgeShape& shape, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const int64_t blocks = (shape.keys + 3) / 4;
  const at::Tensor keys = head_keys.to(device).view({-1, 1, 1});
  at::Tensor key0 = low_half(keys), key1 = high_half(keys);
  std::array<at::Tensor, 4> counter = {
      at::arange(shape.queries, options).view({1, -1, 1}), at::arange(blocks, options).view({1, 1, -1}),
      at::zeros({1, 1, 1}, options), at::zeros({1, 1, 1}, options) + int64_t{kernels::kBlockLane}};
  for (int round = 0; round < 10; ++round) {
    const at::Tensor product0 = counter[0] * int64_t{0xD2511F53};
    const at::Tensor product1 = counter[2] * int64_t{0xCD9E8D57};
    counter = {high_half(product1).bitwise_xor(counter[1]).bitwise_xor(key0), low_half(product1),
               high_half(product0).bitwise_xor(counter[3]).bitwise_xor(key1), low_half(product0)};
    key0 = low_half(key0 + int64_t{0x9E3779B9});
    key1 = low_half(key1 + int64_t{0xBB67AE85});
  }
  const std::vector<int64_t> size = {shape.batch * shape.heads, shape.queries, blocks};
  const at::Tensor words = at::stack(
      {counter[0].expand(size), counter[1].expand(size), counter[2].expand(size), counter[3].expand(size)},
      3);
  return words.view({shape.batch, shape.heads, shape.queries, blocks * 4}).narrow(3, 0, shape.keys);
}

}  // namespace edgewise::ops::reference
