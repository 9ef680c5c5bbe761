#include "ops/layers/state_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>

#include "ops/layers/cuda_rows.h"

namespace edgewise::ops {

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                      NormOutput output, const at::Tensor& mask) {
  if (!cuda_takes_norm(x, weight, bias)) {
    const at::Tensor y = at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
    // Not a product: whatever padding computed, even infinity, becomes 0.
    return mask.defined() ? y.masked_fill(mask.logical_not().unsqueeze(-1), 0) : y;
  }
  const bool narrow = output == NormOutput::kForProducts && at::autocast::is_autocast_enabled(at::kCUDA) &&
                      at::autocast::get_autocast_dtype(at::kCUDA) == at::kBFloat16;
  return cuda_layer_norm(x, weight, bias, eps, narrow ? at::kBFloat16 : at::kFloat, mask);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (cuda_takes_linear(x, weight, bias)) return cuda_linear(x, weight, bias);
  if (!bias.defined()) return at::linear(x, weight);
  // Rows side by side: with more than three dimensions at::linear would add the bias in a pass of its own.
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  return at::linear(x.reshape({-1, x.size(-1)}), weight, bias).view(shape);
}

at::Tensor embed(const EmbedInput& input, double p, bool training) {
  if (p < 1 && cuda_takes_embed(input)) return cuda_embed(input, training ? p : 0.0);
  at::Tensor x = at::embedding(input.table, input.tokens);
  if (input.places.defined())
    x = x + (input.positions.defined() ? at::embedding(input.places, input.positions)
                                       : input.places.slice(0, 0, input.tokens.size(1)));
  return at::dropout(x, p, training);
}

at::Tensor add_dropped(const at::Tensor& x, const at::Tensor& update, double p, bool training) {
  if (p >= 1 || !cuda_takes_add(x, update)) return x + at::dropout(update, p, training);
  return cuda_add_dropped(x, update, training ? p : 0.0);
}

}  // namespace edgewise::ops
