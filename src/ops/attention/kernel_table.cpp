#include "ops/attention/kernel_table.h"

#include <ATen/record_function.h>

#include "ops/attention/reference.h"

namespace edgewise::ops {

// On CPU: cpu_dense.cpp, cpu_gather.cpp.
KernelRefusal cpu_dense_refusal, cpu_gather_refusal;
KernelForward cpu_dense_forward, cpu_gather_forward;
KernelBackward cpu_dense_backward, cpu_gather_backward;
// On CUDA: refusals in cuda_refusals.cpp, the others in files of their own or, without CUDA in the build,
// no_cuda.cpp.
KernelRefusal cuda_gather_refusal, cuda_windows_refusal, cuda_tiles_refusal, cuda_float_tiles_refusal;
KernelForward cuda_gather_forward, cuda_windows_forward, cuda_tiles_forward;
KernelBackward cuda_gather_backward, cuda_windows_backward, cuda_tiles_backward;

namespace {

using functional::Backend;

constexpr AttentionKernel kAttentionKernels[] = {
    {"cpu dense", cpu_dense_refusal, cpu_dense_forward, cpu_dense_backward},
    {"cpu gather", cpu_gather_refusal, cpu_gather_forward, cpu_gather_backward},
    {"cuda gather", cuda_gather_refusal, cuda_gather_forward, cuda_gather_backward},
    {"cuda windows and tiles", cuda_windows_refusal, cuda_windows_forward, cuda_windows_backward},
    {"cuda tiles", cuda_tiles_refusal, cuda_tiles_forward, cuda_tiles_backward},
    {"cuda float tiles", cuda_float_tiles_refusal, cuda_tiles_forward, cuda_tiles_backward},
    {"reference, masked matrices", reference::dense_refusal, reference::dense_forward,
     reference::dense_backward},
    {"reference, edge list", reference::edge_list_refusal, reference::edge_list_forward,
     reference::edge_list_backward},
};

bool is_ours(const AttentionKernel& kernel) {
  return kernel.refusal != reference::dense_refusal && kernel.refusal != reference::edge_list_refusal;
}

}  // namespace

std::span<const AttentionKernel> attention_kernels() {
  return kAttentionKernels;
}

const AttentionKernel& choose_kernel(const AttentionCall& call) {
  std::string refusals;
  for (const AttentionKernel& kernel : kAttentionKernels) {
    const std::string refusal = kernel.refusal(call);
    if (refusal.empty()) return kernel;
    refusals += std::string("\n  ") + kernel.name + ": " + refusal;
  }
  TORCH_CHECK_VALUE(false, "edge_attention: no kernel takes this call on ", call.device,
                    "; Backend::kAuto always has one. They refuse it because of", refusals);
}

std::string not_for(const AttentionCall& call, at::DeviceType device) {
  if (call.device != device)
    return device == at::kCPU ? "the tensors are not on the CPU" : "the tensors are not on a GPU";
  if (call.backend != Backend::kAuto && call.backend != Backend::kKernel)
    return "the reference was asked for";
  return "";
}

AttentionCall counted_call(const AttentionInputs& in) {
  AttentionCall call = in;
  if (call.edge_count || is_ours(choose_kernel(call))) return call;
  call.edge_count = in.edges.edge_count();
  call.is_listed = true;
  return call;
}

AttentionForward run_forward(const AttentionInputs& in) {
  RECORD_FUNCTION("edgewise::edge_attention", {});
  const AttentionKernel& kernel = choose_kernel(counted_call(in));
  AttentionForward result = kernel.forward(in);
  result.kernel = &kernel;
  return result;
}

AttentionBackward run_backward(const AttentionInputs& in, const AttentionForward& forward,
                               const at::Tensor& grad_output, const at::Tensor& density_grad) {
  RECORD_FUNCTION("edgewise::edge_attention_backward", {});
  const AttentionKernel& kernel = forward.kernel ? *forward.kernel : choose_kernel(counted_call(in));
  return kernel.backward(in, forward, grad_output, density_grad);
}

}  // namespace edgewise::ops
