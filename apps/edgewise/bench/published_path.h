// The training path of the SBM paper's released code, in plain torch operations: what bench cuda --others
// measures Edgewise against.
#pragma once

#include <ATen/core/Tensor.h>

namespace edgewise::app {

struct PublishedInputs {
  at::Tensor query, key, value;     // [B, H, n, D]
  at::Tensor membership, key_side;  // [B, H, n, C]
};

// Everything in fp32, as there, whatever comes in:
//   M ~ Bernoulli(clamp(membership key_side^T + 0.01, 0, 1)),
//   a = softmax(query key^T / sqrt(D)) M, divided by its sum over the keys,
// and a straight-through gradient, cut to [-1, 1], for the pairs that were drawn. Without its dropout.
at::Tensor published_attention(const PublishedInputs& in);

}  // namespace edgewise::app
