// What a model does to its states around attention: embedding, layer norm, products with a bias, and the sum
// of a residual with a branch under dropout. On CUDA by kernels of our own (docs/kernels/cuda-rows.md),
// elsewhere by torch's operations.
#pragma once

#include <ATen/core/Tensor.h>

namespace edgewise::ops {

// Where a norm's output goes only into products, these read bf16 under autocast: it is then written so at
// once.
enum class NormOutput { kFull, kForProducts };

// x [..., D], weight and bias [D]. In the precision of x, or bf16 as above. Rows where the mask [...] is
// false become 0, whatever they held.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                      NormOutput output = NormOutput::kFull, const at::Tensor& mask = {});

// x W^T + b; x [..., in], weight [out, in], bias [out] or none.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

struct EmbedInput {
  at::Tensor tokens;     // [B, N], ids
  at::Tensor table;      // [vocabulary, D]
  at::Tensor positions;  // [B, N]; none: 0 .. N - 1
  at::Tensor places;     // [positions, D]; none: tokens alone
};
// dropout(table[tokens] + places[positions], p): [B, N, D]. The numbers come from torch's generator of the
// device.
at::Tensor embed(const EmbedInput& input, double p, bool training);

// x + dropout(update, p), of one shape. The numbers come from torch's generator of the device.
at::Tensor add_dropped(const at::Tensor& x, const at::Tensor& update, double p, bool training);

}  // namespace edgewise::ops
