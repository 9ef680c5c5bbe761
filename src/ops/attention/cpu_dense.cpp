// Calls on CPU in which every pair is an edge go by torch's dense attention, if that is predicted to be
// faster; and the costs by which that is predicted.
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <algorithm>
#include <tuple>

#include "ops/attention/cpu_costs.h"
#include "ops/attention/kernel_table.h"
#include "ops/attention/kernel_views.h"

namespace edgewise::ops {
namespace {

// Nanoseconds on one core, measured (docs/kernels/cpu-attention.md). An edge costs its softmax and its two
// gathered rows, a row its own start and what it finds cold; a pair of a dense product only multiplications.
double gather_ns(double edges, double rows, double dim) {
  return edges * (0.3 + 0.088 * dim) + rows * (30 + 2 * dim);
}
double dense_ns(double pairs, double dim) {
  return pairs * 0.052 * dim;
}

}  // namespace

CpuCosts cpu_costs(const AttentionCall& call) {
  const double edges = static_cast<double>(*call.edge_count), rows = static_cast<double>(call.shape.rows()),
               pairs = static_cast<double>(call.shape.pairs()),
               dim = static_cast<double>(call.head_dim + call.value_dim) / 2;
  CpuCosts result{gather_ns(edges, rows, dim) * 1e-6, dense_ns(pairs, dim) * 1e-6};
  if (pairs > 0)  // the rows alone may cost more than dense attention over a few keys
    result.break_even_density =
        std::clamp((dense_ns(pairs, dim) - gather_ns(0, rows, dim)) / gather_ns(pairs, 0, dim), 0.0, 1.0);
  return result;
}

std::string cpu_dense_refusal(const AttentionCall& call) {
  if (std::string why = not_for(call, at::kCPU); !why.empty()) return why;
  if (call.backend == functional::Backend::kKernel) return "our kernels were asked for";
  if (call.learns.exists()) return "a learner wants a number per edge";
  if (*call.edge_count < call.shape.pairs() || call.shape.pairs() == 0) return "some pairs are no edges";
  if (call.dtype != at::kFloat) return "only float32";
  if (call.value_dim != call.head_dim) return "value and key of different head dims";
  if (call.dropout_p > 0) return "dropout on the weights is drawn per edge";
  const CpuCosts costs = cpu_costs(call);
  return costs.gather_ms <= costs.dense_ms ? "gathering is predicted to be cheaper" : "";
}

// Torch's function reads rows as contiguous and does not look: its caller checks, so we do.
AttentionForward cpu_dense_forward(const AttentionInputs& in) {
  AttentionForward result;
  std::tie(result.output, result.lse) = at::_scaled_dot_product_flash_attention_for_cpu(
      with_contiguous_rows(in.query), with_contiguous_rows(in.key), with_contiguous_rows(in.value),
      /*dropout_p=*/0, /*is_causal=*/false, /*attn_mask=*/{}, in.scale);
  result.output = result.output.contiguous();
  result.lse = result.lse.contiguous();
  return result;
}

KernelBackward cpu_gather_backward;

// Torch forms the weights again as exp(score - lse). Beside a large lse the difference has lost its digits,
// and beyond 1e9 it is hundreds: infinite weights. Ours come from the row's own largest score.
AttentionBackward cpu_dense_backward(const AttentionInputs& in, const AttentionForward& forward,
                                     const at::Tensor& grad_output, const at::Tensor& density_grad) {
  constexpr double kLargestLse = 1e5;  // of which fp32 keeps a hundredth
  if (forward.lse.abs().max().item<double>() > kLargestLse)
    return cpu_gather_backward(in, forward, grad_output, density_grad);
  AttentionBackward result;
  std::tie(result.query, result.key, result.value) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad_output.contiguous(), with_contiguous_rows(in.query), with_contiguous_rows(in.key),
      with_contiguous_rows(in.value), forward.output.contiguous(), forward.lse.contiguous(),
      /*dropout_p=*/0, /*is_causal=*/false,
      /*attn_mask=*/{}, in.scale);
  return result;
}

}  // namespace edgewise::ops
