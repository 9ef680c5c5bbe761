// Which implementation a call of edge_attention takes, and why.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

#include <string>

namespace edgewise {

struct AttentionChoice {
  std::string implementation;  // "gather", "blocks", "gather and blocks", "dense", "tiles", "reference", ...
  std::string reason;
  std::string cpu_level = {};  // whose instructions run; empty on CUDA
  // Forward of all heads on one CPU core, from measured costs (docs/kernels/cpu-attention.md), which are of
  // fp32 rows on AVX-512: is_calibrated where that is what was asked for. (Rows of bf16 are rivalled by dense
  // attention in bf16, of which nothing was measured for this.) 0 on CUDA.
  double gather_ms = 0, dense_ms = 0;
  bool is_calibrated = false;
  double break_even_density = 0;  // of the pairs: there gather_ms would be dense_ms
  // On CPU, unless dense: of `heads` heads (of all items), how many go in blocks of all pairs with the edges
  // masked, and what that is predicted to cost if all did; chosen per head.
  int64_t heads = 0, blocks_forward = 0, blocks_backward = 0;
  double blocks_ms = 0, gather_backward_ms = 0, blocks_backward_ms = 0;
  // bf16 on CPU: whether query, key and value are widened to fp32 once per call, and in words why or why not.
  bool widened = false;
  std::string bf16_rows = {};
};

// Of a call without dropout or learner; of inputs that require gradients with the backward pass in mind.
AttentionChoice explain_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const EdgeSet& edges);

}  // namespace edgewise
