// What edge_attention on CPU is predicted to cost, edge by edge and by torch's dense attention, and whether
// rows of bf16 are widened first.
#pragma once

#include "ops/attention/attention_call.h"

namespace edgewise::ops {

// Forward of all heads, one core.
struct CpuCosts {
  double gather_ms = 0, dense_ms = 0;
  double break_even_density = 0;  // at which the two would be equal
};
CpuCosts cpu_costs(const AttentionCall& call);

// Edges per key.
double mean_degree(const AttentionCall& call);

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
Widening choose_widening(const AttentionCall& call);

}  // namespace edgewise::ops
