#include "ops/state_rows.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/layer_norm.h>

#include "ops/cuda_rows.h"

namespace edgewise::ops {

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                      NormOutput output) {
  if (!cuda_takes_norm(x, weight, bias)) return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
  const bool narrow = output == NormOutput::kForProducts && at::autocast::is_autocast_enabled(at::kCUDA) &&
                      at::autocast::get_autocast_dtype(at::kCUDA) == at::kBFloat16;
  return cuda_layer_norm(x, weight, bias, eps, narrow ? at::kBFloat16 : at::kFloat);
}

at::Tensor add_dropped(const at::Tensor& x, const at::Tensor& update, double p, bool training) {
  if (p >= 1 || !cuda_takes_add(x, update)) return x + at::dropout(update, p, training);
  return cuda_add_dropped(x, update, training ? p : 0.0);
}

}  // namespace edgewise::ops
