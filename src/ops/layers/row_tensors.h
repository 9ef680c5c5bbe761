// What autograd around the CUDA kernels over rows (cuda_rows.cpp, cuda_linear.cpp, cuda_embed.cpp) has in
// common. Only files that are built with CUDA include this.
#pragma once

#include <algorithm>
#include <cmath>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <torch/csrc/autograd/custom_function.h>

#include "graph/cuda_launch.h"
#include "kernels/cuda/layers/row_params.h"

namespace edgewise::ops {

inline bool is_whole_row_tensor(const at::Tensor& x) {
  return x.is_contiguous() && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}
inline at::Tensor whole_rows(const at::Tensor& x) {
  const at::Tensor rows = x.contiguous();
  return is_whole_row_tensor(rows) ? rows : rows.clone(at::MemoryFormat::Contiguous);
}

template <typename T>
T* data(const at::Tensor& x) {
  return reinterpret_cast<T*>(x.mutable_data_ptr());
}
template <typename T>
const T* const_data(const at::Tensor& x) {
  return reinterpret_cast<const T*>(x.const_data_ptr());
}

// The kernels give first derivatives only; with torch's operations one gets the second.
inline void check_first_derivative(const char* what) {
  TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(), what,
                              ": expected one backward pass on CUDA; got a request for second derivatives, "
                              "which the kernel does not have. Compute them on a CPU.");
}

// Dropout of one call: how many of 65,536 are dropped, and where the generator stood.
struct Dropped : torch::CustomClassHolder {
  uint32_t limit = 0;
  kernels::cuda::DropoutStream stream;
};

inline c10::intrusive_ptr<Dropped> draw_dropped(const char* what, const at::Device& device, double p) {
  TORCH_CHECK_VALUE(p >= 0 && p < 1, what, ": expected a probability in [0, 1); got ", p);
  auto result = c10::make_intrusive<Dropped>();
  result->limit = static_cast<uint32_t>(std::min<int64_t>(std::llround(p * 65536), 65535));
  if (result->limit == 0) return result;
  // A number of the generator belongs to this call alone, as if torch had drawn here.
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  const at::PhiloxCudaState state =
      at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(4);
  kernels::cuda::DropoutStream& stream = result->stream;
  if (state.captured_) {
    stream.seed_at = state.seed_.ptr, stream.offset_at = state.offset_.ptr;
    stream.offset = state.offset_intragraph_;
  } else {
    stream.seed = state.seed_.val, stream.offset = state.offset_.val;
  }
  return result;
}

// The gradient of what was dropped, [elements] in the type of the update.
template <typename Update>
void launch_dropped_grad(const at::Tensor& y_grad, const Dropped& dropped, Update* update_grad) {
  kernels::cuda::DroppedGradParams<Update> params;
  params.elements = y_grad.numel(), params.y_grad = y_grad.const_data_ptr<float>();
  params.update_grad = update_grad, params.limit = dropped.limit, params.stream = dropped.stream;
  graph::check_launch("dropped_grad", kernels::cuda::launch_dropped_grad(params, graph::current_stream()));
}

}  // namespace edgewise::ops
