// Bool tensors, byte by byte. A byte other than 0 and 1 is true as well: uint8 viewed as bool has such bytes,
// and so may memory from elsewhere. Kernels therefore read bytes and compare them with 0; who adds up, copies
// or hands on what a caller gave takes zeros and ones first.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace edgewise::graph {

// The bytes of a contiguous bool tensor, null without one.
inline const uint8_t* bool_bytes(const at::Tensor& mask) {
  return mask.defined() ? reinterpret_cast<const uint8_t*>(mask.const_data_ptr<bool>()) : nullptr;
}
inline const uint8_t* bool_bytes(const std::optional<at::Tensor>& mask) {
  return mask ? bool_bytes(*mask) : nullptr;
}

// A new bool tensor of zeros and ones, with the same meaning.
inline at::Tensor zeros_and_ones(const at::Tensor& mask) {
  return mask.view(at::kByte).ne(0);
}

}  // namespace edgewise::graph
