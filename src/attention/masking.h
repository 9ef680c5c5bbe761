// What attention methods do about padding, and about numbers of fewer bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace edgewise {

// x [B, H, N, D] with the rows of padding tokens 0. masked_fill, not a product: even infinity becomes 0.
at::Tensor zero_padding(const at::Tensor& x, const std::optional<at::Tensor>& mask);

// Softmax over the last dim of the entries that `allowed` (broadcast) marks; the others get weight 0, and so
// does a row that has none.
at::Tensor masked_softmax(const at::Tensor& logits, const at::Tensor& allowed);

// While it lives, the calling thread computes without autocast on this device type: sums over a whole
// sequence, exponentials and inverses need fp32.
class NoAutocast {
 public:
  explicit NoAutocast(at::DeviceType type);
  ~NoAutocast();
  NoAutocast(const NoAutocast&) = delete;
  NoAutocast& operator=(const NoAutocast&) = delete;

 private:
  at::DeviceType type_;
  bool was_enabled_;
};

}  // namespace edgewise
