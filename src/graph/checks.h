// Checks on what users hand in: one place, messages that say where and what was expected.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

#include "kernels/csr_fault.h"

namespace edgewise::graph {

// Sizes are non-negative and their products fit int64; keys fit int32.
void check_shape(const char* function, const EdgeShape& shape);
void check_same_shape(const char* function, const EdgeShape& expected, const EdgeShape& found);
// [batch, length] bool.
void check_token_mask(const char* function, const char* name, const at::Tensor& mask, int64_t batch,
                      int64_t length);
// What is known of a CSR without looking into it: types, sizes, one device.
void check_csr_sizes(const char* function, const EdgeShape& shape, const at::Tensor& row_offsets,
                     const at::Tensor& col_indices);
// Offsets and columns of a valid CSR: O(E). Waits for CUDA tensors; csr_cuda.h does not.
void check_csr(const char* function, const EdgeShape& shape, const at::Tensor& row_offsets,
               const at::Tensor& col_indices);
// Throws unless the kind is kNone; `more` ends the message.
void raise_fault(const char* function, const kernels::CsrFault& fault, const char* more);

}  // namespace edgewise::graph
