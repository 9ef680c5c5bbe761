// The layer norms of encoders and decoders, which a model may leave out.
#pragma once

#include <torch/nn/modules/normalization.h>

#include "ops/state_rows.h"

namespace edgewise {

inline torch::nn::LayerNorm make_norm(int64_t dim) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim}));
}

// x itself where the model has no norm.
inline at::Tensor normed(const torch::nn::LayerNorm& norm, const at::Tensor& x,
                         ops::NormOutput output = ops::NormOutput::kFull) {
  return norm.is_empty() ? x : ops::layer_norm(x, norm->weight, norm->bias, norm->options.eps(), output);
}

}  // namespace edgewise
