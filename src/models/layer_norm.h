// The layer norms of encoders and decoders, which a model may leave out.
#pragma once

#include <torch/nn/modules/normalization.h>

namespace edgewise {

inline torch::nn::LayerNorm make_norm(int64_t dim) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim}));
}

// x itself where the model has no norm.
inline at::Tensor normed(const torch::nn::LayerNorm& norm, const at::Tensor& x) {
  return norm.is_empty() ? x : norm.ptr()->forward(x);
}

}  // namespace edgewise
