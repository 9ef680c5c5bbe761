#include <edgewise/ops/explain.h>

#include <ATen/core/grad_mode.h>

#include <edgewise/ops/cpu_level.h>

#include <cstdio>

#include "ops/attention/cpu_costs.h"
#include "ops/attention/kernel_table.h"
#include "ops/squares/square_edge_attention.h"

namespace edgewise {
namespace {

std::string kibibytes(int64_t bytes) {
  return std::to_string((bytes + 1023) / 1024) + " KiB";
}

// What was decided of bf16 rows, and by which numbers.
std::string describe(const ops::Widening& choice) {
  char reads[64];
  std::snprintf(reads, sizeof reads, "%.1f times (from %.0f on)", choice.reads, ops::Widening::kLeastReads);
  return std::string(choice.worth ? "widened to fp32 once per call" : "read as bf16, not widened to fp32") +
         ": a key is read " + reads + ", a head's keys and values take " + kibibytes(choice.head_bytes) +
         " in fp32 (up to " + kibibytes(ops::Widening::kLargestHead) + ")";
}

}  // namespace

namespace ops {

AttentionChoice explain_call(const AttentionCall& call) {
  AttentionChoice result;
  result.implementation = choose_kernel(call).name;
  for (const AttentionKernel& kernel : attention_kernels())
    result.kernels.push_back({kernel.name, kernel.refusal(call)});
  if (call.device != at::kCPU) return result;
  const CpuCosts costs = cpu_costs(call);
  result.cpu_level = call.dtype == at::kDouble ? "scalar" : cpu_level();
  result.gather_ms = costs.gather_ms, result.dense_ms = costs.dense_ms;
  result.break_even_density = costs.break_even_density;
  result.is_calibrated = call.dtype == at::kFloat && result.cpu_level.starts_with("avx512");
  if (call.dtype == at::kBFloat16) {
    const Widening widening = choose_widening(call);
    result.widened = widening.worth;
    result.bf16_rows = describe(widening);
  }
  return result;
}

}  // namespace ops

AttentionChoice explain_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const EdgeSet& edges) {
  if (edges.squares()) return ops::explain_square_attention(query, key, value, edges);
  ops::AttentionInputs in = ops::attention_inputs(query, key, value, edges, std::nullopt);
  in.gradients_follow =
      at::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad());
  return ops::explain_call(ops::counted_call(in));
}

}  // namespace edgewise
