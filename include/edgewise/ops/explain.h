// Which implementation a call of edge_attention takes, and why.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

#include <string>

namespace edgewise {

struct AttentionChoice {
  std::string implementation;  // "gather", "dense", "tiles", "reference", ...
  std::string reason;
  // Forward of all heads on one CPU core, from measured costs (docs/kernels/cpu-attention.md); 0 on CUDA.
  double gather_ms = 0, dense_ms = 0;
};

// Of a call without dropout or learner.
AttentionChoice explain_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const EdgeSet& edges);

}  // namespace edgewise
