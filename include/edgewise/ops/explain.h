// Which kernel a call of edge_attention takes, and why the others do not.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>

#include <string>
#include <vector>

namespace edgewise {

struct KernelAnswer {
  std::string kernel;
  std::string refusal;  // why it does not take the call; empty when it does
};

struct AttentionChoice {
  std::string implementation;         // the first kernel that does not refuse
  std::vector<KernelAnswer> kernels;  // in the order in which they are asked
  std::string cpu_level = {};         // whose instructions run; empty on CUDA
  // Forward of all heads on one CPU core, from measured costs (docs/kernels/cpu-attention.md), which are of
  // fp32 rows on AVX-512: is_calibrated where that is what was asked for. (Rows of bf16 are rivalled by dense
  // attention in bf16, of which nothing was measured for this.) 0 on CUDA.
  double gather_ms = 0, dense_ms = 0;
  bool is_calibrated = false;
  double break_even_density = 0;  // of the pairs: there gather_ms would be dense_ms
  // bf16 on CPU: whether query, key and value are widened to fp32 once per call, and in words why or why not.
  bool widened = false;
  std::string bf16_rows = {};
};

// Of a call without dropout or learner; of inputs that require gradients with the backward pass in mind.
AttentionChoice explain_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const EdgeSet& edges);

}  // namespace edgewise
