// What a layer does to its states between the products: layer norm, and the sum of a residual with a branch
// under dropout. On CUDA by kernels of our own (docs/kernels/cuda-rows.md), elsewhere by torch's operations.
#pragma once

#include <ATen/core/Tensor.h>

namespace edgewise::ops {

// Where a norm's output goes only into products, these read bf16 under autocast: it is then written so at
// once.
enum class NormOutput { kFull, kForProducts };

// x [..., D], weight and bias [D]. In the precision of x, or bf16 as above.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                      NormOutput output = NormOutput::kFull);

// x + dropout(update, p), of one shape. The numbers come from torch's generator of the device.
at::Tensor add_dropped(const at::Tensor& x, const at::Tensor& update, double p, bool training);

}  // namespace edgewise::ops
