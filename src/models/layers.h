// What encoders and decoders do with torch's modules: layer norms, which a model may leave out, and linear
// layers.
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "ops/layers/state_rows.h"

namespace edgewise {

inline torch::nn::LayerNorm make_norm(int64_t dim) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim}));
}

// x itself where the model has no norm.
inline at::Tensor normed(const torch::nn::LayerNorm& norm, const at::Tensor& x,
                         ops::NormOutput output = ops::NormOutput::kFull) {
  return norm.is_empty() ? x : ops::layer_norm(x, norm->weight, norm->bias, norm->options.eps(), output);
}

// The same with 0 where the mask [B, N] is false.
inline at::Tensor normed_or_zero(const torch::nn::LayerNorm& norm, const at::Tensor& x,
                                 const at::Tensor& mask) {
  if (norm.is_empty()) return x.masked_fill(mask.logical_not().unsqueeze(-1), 0);
  return ops::layer_norm(x, norm->weight, norm->bias, norm->options.eps(), ops::NormOutput::kFull, mask);
}

// Rows of x [B, N, dim] at places [B, M] -> [B, M, dim].
inline at::Tensor at_places(const at::Tensor& x, const at::Tensor& places) {
  return x.gather(1, places.unsqueeze(-1).expand({-1, -1, x.size(2)}));
}

inline at::Tensor projected(const torch::nn::Linear& layer, const at::Tensor& x) {
  return ops::linear(x, layer->weight, layer->bias);
}

}  // namespace edgewise
