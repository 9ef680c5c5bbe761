#include "ops/squares/square_kernels.h"

namespace edgewise::ops {
namespace {

using functional::Backend;

std::string not_for(const SquareCall& call, Backend backend, at::DeviceType device) {
  if (call.query.device().type() != device)
    return device == at::kCPU ? "the tensors are not on the CPU" : "the tensors are not on a GPU";
  if (backend != Backend::kAuto && backend != Backend::kKernel) return "the reference was asked for";
  return "";
}
std::string cpu_refusal(const SquareCall& call, Backend backend) {
  return not_for(call, backend, at::kCPU);
}
std::string cuda_refusal(const SquareCall& call, Backend backend) {
  const std::string reason = not_for(call, backend, at::kCUDA);
  return reason.empty() ? cuda_square_refusal(call) : reason;
}
std::string reference_refusal(const SquareCall&, Backend backend) {
  return backend == Backend::kKernel ? "a kernel was asked for" : "";
}

constexpr SquareKernel kSquareKernels[] = {
    {"cpu squares", cpu_refusal, cpu_square_forward, cpu_square_backward},
    {"cuda squares", cuda_refusal, cuda_square_forward, cuda_square_backward},
    {"reference, squares as masked matrices", reference_refusal, reference::square_forward,
     reference::square_backward},
};

}  // namespace

std::span<const SquareKernel> square_kernels() {
  return kSquareKernels;
}

const SquareKernel& choose_square_kernel(const SquareCall& call, Backend backend) {
  std::string refusals;
  for (const SquareKernel& kernel : kSquareKernels) {
    const std::string refusal = kernel.refusal(call, backend);
    if (refusal.empty()) return kernel;
    refusals += std::string("\n  ") + kernel.name + ": " + refusal;
  }
  TORCH_CHECK_VALUE(false, "edge_attention: no kernel over squares takes this call on ", call.query.device(),
                    "; Backend::kAuto always has one. They refuse it because of", refusals);
}

}  // namespace edgewise::ops
