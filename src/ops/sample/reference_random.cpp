// Philox in plain ATen: the same words as src/kernels/philox.h, on any device.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <array>

#include "kernels/pair_numbers.h"
#include "kernels/philox.h"
#include "kernels/probe_units.h"
#include "ops/attention/reference.h"
#include "ops/walk/walk_random.h"

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

// The four words of philox({row, block, 0, lane}, key), for int64 tensors that broadcast.
std::array<at::Tensor, 4> philox_words(const at::Tensor& key, const at::Tensor& row, const at::Tensor& block,
                                       uint32_t lane, int rounds) {
  const at::Tensor zero = at::zeros({1}, key.options());
  at::Tensor key0 = low_half(key), key1 = high_half(key);
  std::array<at::Tensor, 4> counter = {row, block, zero, zero + int64_t{lane}};
  for (int round = 0; round < rounds; ++round) {
    const at::Tensor product0 = counter[0] * int64_t{0xD2511F53};
    const at::Tensor product1 = counter[2] * int64_t{0xCD9E8D57};
    counter = {high_half(product1).bitwise_xor(counter[1]).bitwise_xor(key0), low_half(product1),
               high_half(product0).bitwise_xor(counter[3]).bitwise_xor(key1), low_half(product0)};
    key0 = low_half(key0 + int64_t{0x9E3779B9});
    key1 = low_half(key1 + int64_t{0xBB67AE85});
  }
  return counter;
}

std::array<at::Tensor, 4> block_words(const at::Tensor& key, const at::Tensor& row, const at::Tensor& block) {
  return philox_words(key, row, block, kernels::kBlockLane, 10);
}

}  // namespace

at::Tensor pair_numbers(const at::Tensor& head_keys, const EdgeShape& shape, at::Device device,
                        int64_t first_row) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const int64_t heads = shape.batch * shape.heads, groups = (shape.keys + 31) / 32;
  const at::Tensor keys = head_keys.to(device).view({-1, 1, 1}),
                   rows = (at::arange(shape.queries, options) + first_row).view({1, -1, 1});
  const at::Tensor calls = at::arange(groups * 4, options).view({1, 1, -1});
  const auto halves = [&](uint32_t lane) {
    const auto words = philox_words(keys, rows, calls, lane, 7);
    const std::vector<int64_t> size = {heads, shape.queries, groups, 4};  // group of 32 columns, t
    std::vector<at::Tensor> parts;
    for (const at::Tensor& word : words) {
      const at::Tensor whole = word.expand({heads, shape.queries, groups * 4}).reshape(size);
      parts.push_back(
          at::stack({whole.bitwise_and(0xFFFF), whole.bitwise_right_shift(16)}, 4));  // [.., t, half]
    }
    return at::stack(parts, 3);  // [.., group, word, t, half]: columns in order
  };
  return (halves(kernels::kPairHighLane).bitwise_left_shift(16) + halves(kernels::kPairLowLane))
      .reshape({shape.batch, shape.heads, shape.queries, groups * 32})
      .narrow(3, 0, shape.keys);
}

at::Tensor unit_numbers(const at::Tensor& head_keys, const EdgeShape& shape, at::Device device,
                        int64_t first_row) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const int64_t heads = shape.batch * shape.heads,
                calls = (shape.keys + 4 * kernels::kProbeUnit - 1) / (4 * kernels::kProbeUnit);
  const at::Tensor rows =
      (at::arange(shape.queries, options) + first_row).div(kernels::kProbeUnit, "floor").view({1, -1, 1});
  const auto words = philox_words(head_keys.to(device).view({-1, 1, 1}), rows,
                                  at::arange(calls, options).view({1, 1, -1}), kernels::kUnitLane, 7);
  std::vector<at::Tensor> units;
  for (const at::Tensor& word : words) units.push_back(word.expand({heads, shape.queries, calls}));
  return at::stack(units, 3)
      .reshape({shape.batch, shape.heads, shape.queries, calls * 4})
      .repeat_interleave(kernels::kProbeUnit, 3)
      .narrow(3, 0, shape.keys);
}

at::Tensor pair_words(const at::Tensor& head_keys, const EdgeShape& shape, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const int64_t blocks = (shape.keys + 3) / 4;
  const auto words =
      block_words(head_keys.to(device).view({-1, 1, 1}), at::arange(shape.queries, options).view({1, -1, 1}),
                  at::arange(blocks, options).view({1, 1, -1}));
  const std::vector<int64_t> size = {shape.batch * shape.heads, shape.queries, blocks};
  return at::stack(
             {words[0].expand(size), words[1].expand(size), words[2].expand(size), words[3].expand(size)}, 3)
      .view({shape.batch, shape.heads, shape.queries, blocks * 4})
      .narrow(3, 0, shape.keys);
}

at::Tensor edge_words(const at::Tensor& head_keys, const EdgeSet& edges) {
  const int64_t queries = std::max<int64_t>(edges.shape().queries, 1);
  const at::Tensor rows = edges.edge_rows(), columns = edges.col_indices().to(at::kLong);
  return words_at(head_keys.to(edges.device()).index_select(0, rows.div(queries, "floor")),
                  rows.remainder(queries), columns);
}

at::Tensor words_at(const at::Tensor& keys, const at::Tensor& rows, const at::Tensor& columns) {
  const auto words = block_words(keys, rows, columns.div(4, "floor"));
  return at::stack({words[0], words[1], words[2], words[3]}, 1)
      .gather(1, columns.remainder(4).unsqueeze(1))
      .squeeze(1);
}

at::Tensor walk_uniforms(const at::Tensor& head_keys, int64_t rows, int64_t steps, uint32_t lane,
                         at::Device device, int64_t first_row) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const auto words = philox_words(head_keys.to(device).view({-1, 1, 1}),
                                  (at::arange(rows, options) + first_row).view({1, -1, 1}),
                                  at::arange(steps, options).view({1, 1, -1}), lane, 10);
  const at::Tensor bits = words[0].bitwise_left_shift(20) + words[1].bitwise_right_shift(12);
  return (bits.to(at::kDouble) + 0.5) * 0x1.0p-52;
}

}  // namespace edgewise::ops::reference
