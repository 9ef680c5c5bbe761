// A CSR of CUDA tensors that comes from outside, checked on the device without waiting for it
// (kernels/cuda/lists/csr_check.cu).
#pragma once

#include <edgewise/graph/edge_set.h>

#include <optional>

namespace edgewise::graph {

struct SafeCsr {
  at::Tensor row_offsets, col_indices;  // what was given, or, if that has a fault, something harmless
  at::Tensor fault_place;               // [1] int64 on the device: 0 = no fault
};

// Types and sizes were checked by check_csr_sizes. Nothing where there are no kernels for this device. A
// fault is raised by a later call, raise_csr_fault, or here if CUDA_LAUNCH_BLOCKING=1 asks for that.
std::optional<SafeCsr> cuda_safe_csr(const char* function, const EdgeShape& shape,
                                     const at::Tensor& row_offsets, const at::Tensor& col_indices);

// Raises what the device has found in calls before, if it has got so far. Does not wait.
void raise_csr_fault(at::Device device);
// The same of every device, after waiting for all that was started.
void wait_for_csr_faults();

// Results of a call whose edges had a fault become NaN.
void spoil_results(const SafeCsr& csr, at::TensorList results);

}  // namespace edgewise::graph
