// Bool tensors whose true bytes are not 1, as uint8 viewed as bool has them.
#pragma once

#include <torch/torch.h>

namespace edgewise::kit {

// The same meaning as `mask`; what is true has one of the bytes 2 .. 255.
inline at::Tensor other_bytes(const at::Tensor& mask) {
  const at::Tensor bytes =
      at::arange(mask.numel(), mask.options().dtype(at::kLong)).remainder(254).add(2).to(at::kByte);
  return (bytes.view(mask.sizes()) * mask.to(at::kByte)).view(at::kBool);
}

}  // namespace edgewise::kit
