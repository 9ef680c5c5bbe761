// Where edge_attention on CPU leaves its own kernels: when every pair is an edge there is nothing to gather,
// and torch's dense attention multiplies blocks at a time.
#pragma once

#include <string>

#include "ops/attention_impl.h"

namespace edgewise::ops {

struct CpuChoice {
  bool dense = false;
  std::string reason;
  double gather_ms = 0, dense_ms = 0;  // predicted, forward, all heads, one core
};
CpuChoice choose_cpu_attention(const AttentionInputs& in);

// For inputs whose choice is dense. The backward serves no learner: that wants a number per edge.
AttentionForward complete_forward(const AttentionInputs& in);
AttentionBackward complete_backward(const AttentionInputs& in, const AttentionForward& forward,
                                    const at::Tensor& grad_output);

}  // namespace edgewise::ops
