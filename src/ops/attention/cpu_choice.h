// What edge_attention on CPU does with a head: edges gathered one by one, blocks of all pairs with the edges
// masked, or, when every pair of every head is an edge, torch's dense attention.
#pragma once

#include <string>

#include "ops/attention/attention_impl.h"

namespace edgewise::ops {

struct CpuChoice {
  bool dense = false;
  std::string reason;
  double gather_ms = 0, dense_ms = 0;  // predicted, forward, all heads, one core
  double break_even_density = 0;       // at which the two would be equal
};

// Predicted costs of one head with that many edges, one core: edges gathered one by one, or blocks of all
// pairs with the edges masked (ops/attention/masked_blocks.h).
struct HeadCosts {
  double gather_forward_ms = 0, gather_backward_ms = 0, blocks_forward_ms = 0, blocks_backward_ms = 0;
};
HeadCosts head_costs(const AttentionInputs& in, int64_t edges);
CpuChoice choose_cpu_attention(const AttentionInputs& in);

// Edges per key.
double mean_degree(const AttentionInputs& in);

// Rows of bf16 are widened for each edge that reads them, and their own products are no faster than those of
// fp32 (docs/kernels/cpu-attention.md): where keys are read often and lie in the cache even in fp32, they are
// widened once a call, and the rest is a call in fp32.
struct Widening {
  static constexpr double kLeastReads = 64;
  static constexpr int64_t kLargestHead = int64_t{1} << 20;  // bytes

  double reads = 0;        // of a key, on average
  int64_t head_bytes = 0;  // keys and values of a head in fp32
  bool worth = false;      // never for other types than bf16
};
Widening choose_widening(const AttentionInputs& in);
AttentionInputs widened(AttentionInputs in);

// For inputs whose choice is dense. The backward serves no learner: that wants a number per edge.
AttentionForward complete_forward(const AttentionInputs& in);
AttentionBackward complete_backward(const AttentionInputs& in, const AttentionForward& forward,
                                    const at::Tensor& grad_output);

}  // namespace edgewise::ops
