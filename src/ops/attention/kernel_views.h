// From tensors to the raw views that kernels take.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <edgewise/graph/edge_set.h>

#include <type_traits>
#include <utility>

#include "graph/huge_pages.h"
#include "kernels/params.h"

namespace edgewise::ops {

// The torch type behind a kernel type.
template <typename T>
using TorchType = std::conditional_t<std::is_same_v<T, kernels::Bf16>, c10::BFloat16, T>;

template <typename T>
const T* const_data_of(const at::Tensor& tensor) {
  return reinterpret_cast<const T*>(tensor.const_data_ptr<TorchType<T>>());
}
template <typename T>
T* data_of(at::Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.mutable_data_ptr<TorchType<T>>());
}

// Calls body with a value of the kernel type for `dtype`.
template <typename Body>
auto dispatch_kernel_type(at::ScalarType dtype, const Body& body) {
  switch (dtype) {
    case at::kFloat:
      return body(float{});
    case at::kDouble:
      return body(double{});
    case at::kBFloat16:
      return body(kernels::Bf16{});
    default:
      TORCH_CHECK_TYPE(false, "edgewise kernels: expected float32, float64 or bfloat16; got ", dtype,
                       ". Convert the tensors with .to(torch.float32)");
  }
}

// [B, H, N, W] whose last dimension is contiguous; copies only when it is not.
inline at::Tensor with_contiguous_rows(const at::Tensor& tensor) {
  return tensor.stride(3) == 1 || tensor.size(3) <= 1 ? tensor : tensor.contiguous();
}

// Whether rows that are read again and again in any order, `times` each on average, should be copied first:
// rows of several heads interleaved [B, N, H, W], which would share a fraction of the cache's sets, and heads
// too large for the cache, which move to huge pages.
inline bool worth_a_copy(const at::Tensor& tensor, double times) {
  constexpr double kWorthACopy = 4;
  constexpr size_t kLargeHead = size_t{4} << 20;
  const bool scattered = tensor.stride(2) != tensor.size(3);
  const bool large =
      static_cast<size_t>(tensor.size(2) * tensor.size(3)) * tensor.element_size() >= kLargeHead;
  return times >= kWorthACopy && (scattered || large);
}

// [B, H, N, W] with contiguous rows, copied where that pays.
inline at::Tensor for_gathering(const at::Tensor& tensor, double times) {
  if (!worth_a_copy(tensor, times)) return with_contiguous_rows(tensor);
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
  return graph::on_huge_pages(copy).copy_(tensor);
}

template <typename T>
kernels::HeadView<T> head_view(const at::Tensor& tensor) {
  return {const_data_of<T>(tensor), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

inline kernels::CsrView csr_view(const EdgeSet& edges) {
  const EdgeShape& shape = edges.shape();
  return {shape.heads, shape.queries, shape.keys, edges.row_offsets().const_data_ptr<int64_t>(),
          edges.col_indices().const_data_ptr<int32_t>()};
}

}  // namespace edgewise::ops
