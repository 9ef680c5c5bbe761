// The CUDA kernels behind state_rows.h. Without CUDA in the build, none takes a call.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/layers/state_rows.h"

namespace edgewise::ops {

bool cuda_takes_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor cuda_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                           at::ScalarType output, const at::Tensor& mask);

bool cuda_takes_add(const at::Tensor& x, const at::Tensor& update);
at::Tensor cuda_add_dropped(const at::Tensor& x, const at::Tensor& update, double p);

bool cuda_takes_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor cuda_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

bool cuda_takes_embed(const EmbedInput& input);
at::Tensor cuda_embed(const EmbedInput& input, double p);

}  // namespace edgewise::ops
