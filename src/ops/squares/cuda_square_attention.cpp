// Attention over squares on CUDA: what the kernels take, and their launches on the current stream.
#include <edgewise/ops/float32_matmul.h>

#include "graph/cuda_launch.h"
#include "ops/squares/square_launch.h"

namespace edgewise::ops {
namespace {

kernels::cuda::Tf32 products() {
  return float32_matmul() == Float32Matmul::kTf32 ? kernels::cuda::Tf32::kOnce : kernels::cuda::Tf32::kThrice;
}

}  // namespace

std::string cuda_square_refusal(const SquareCall& call) {
  const at::ScalarType dtype = call.query.scalar_type();
  if (!graph::is_hopper(call.query.device()))
    return "the CUDA kernels over squares are built for compute capability 9.0 (Hopper)";
  if (dtype != at::kBFloat16 && dtype != at::kFloat)
    return c10::str("the CUDA kernels over squares take bfloat16 and float32; got ", dtype);
  if (dtype == at::kFloat && float32_matmul() == Float32Matmul::kIeee)
    return c10::str("float32 products by ", to_string(Float32Matmul::kIeee), " (", float32_matmul_reason(),
                    "): tensor cores have none");
  if (square_kernel_dim(call) == 0)
    return c10::str("the CUDA kernels over squares take head dims up to 128; got ", call.query.size(3),
                    " for keys and ", call.value.size(3), " for values");
  const int64_t tokens = std::max(call.query.size(2), call.key.size(2));
  const int64_t most =
      kernels::cuda::kMostSquareBytes / (square_kernel_dim(call) * call.query.element_size());
  if (tokens > most)
    return c10::str("the CUDA kernels over squares take heads of up to 4 GiB, ", most, " tokens here; got ",
                    tokens);
  return "";
}

SquareForward cuda_square_forward(const SquareCall& call) {
  const c10::cuda::CUDAGuard guard(call.query.device());
  return square_forward_by_kernels(call, products(), graph::current_stream(), graph::check_launch);
}

SquareBackward cuda_square_backward(const SquareCall& call, const SquareForward& forward,
                                    const at::Tensor& grad_output, const SquareCredit& credit) {
  const c10::cuda::CUDAGuard guard(call.query.device());
  const auto like_query = [&](const at::Tensor& x) { return x.to(call.query.scalar_type()); };
  return square_backward_by_kernels(call, {like_query(forward.output), forward.lse}, like_query(grad_output),
                                    credit, products(), graph::current_stream(), graph::check_launch);
}

}  // namespace edgewise::ops
