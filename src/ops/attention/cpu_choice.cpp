// Gather or dense on CPU, by predicted cost, and the dense side.
#include "ops/attention/cpu_choice.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <edgewise/ops/cpu_level.h>
#include <edgewise/ops/explain.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "ops/attention/cuda_impl.h"
#include "ops/attention/kernel_views.h"
#include "ops/attention/masked_blocks.h"

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

double mean_dim(const AttentionInputs& in) {
  return static_cast<double>(in.query.size(3) + in.value.size(3)) / 2;
}

}  // namespace

HeadCosts head_costs(const AttentionInputs& in, int64_t edge_count) {
  const EdgeShape& shape = in.edges.shape();
  const double edges = static_cast<double>(edge_count), rows = static_cast<double>(shape.queries),
               pairs = rows * static_cast<double>(shape.keys), dim = mean_dim(in);
  const double calls = (rows / 64 + 1) * 10000;  // of at::mm and its like, per block
  return {gather_ns(edges, rows, dim) * 1e-6, (edges * 0.35 * dim + rows * 80) * 1e-6,
          (pairs * (0.8 + 0.04 * dim) + calls) * 1e-6, (pairs * 0.138 * dim + 3 * calls) * 1e-6};
}

CpuChoice choose_cpu_attention(const AttentionInputs& in) {
  const EdgeShape& shape = in.edges.shape();
  const double edges = static_cast<double>(in.edges.edge_count()), dim = mean_dim(in);
  const double rows = static_cast<double>(shape.rows()), pairs = static_cast<double>(shape.pairs());
  CpuChoice result;
  result.gather_ms = gather_ns(edges, rows, dim) * 1e-6;
  result.dense_ms = dense_ns(pairs, dim) * 1e-6;
  if (pairs > 0)  // the rows alone may cost more than dense attention over a few keys
    result.break_even_density =
        std::clamp((dense_ns(pairs, dim) - gather_ns(0, rows, dim)) / gather_ns(pairs, 0, dim), 0.0, 1.0);
  if (in.edges.edge_count() < shape.pairs() || shape.pairs() == 0)
    result.reason = "some pairs are no edges";
  else if (in.query.scalar_type() != at::kFloat)
    result.reason = "all pairs are edges, but only float32 has a dense route";
  else if (in.value.size(3) != in.query.size(3))
    result.reason = "all pairs are edges, but value and key are of different head dims";
  else if (in.dropout_p > 0)
    result.reason = "all pairs are edges, but dropout on the weights is drawn per edge";
  else if (result.gather_ms <= result.dense_ms)
    result.reason = "gathering is predicted to be cheaper";
  else
    result.dense = true, result.reason = "all pairs are edges: nothing to gather";
  return result;
}

double mean_degree(const AttentionInputs& in) {
  return static_cast<double>(in.edges.edge_count()) /
         static_cast<double>(std::max<int64_t>(in.edges.shape().columns(), 1));
}

Widening choose_widening(const AttentionInputs& in) {
  if (in.query.scalar_type() != at::kBFloat16) return {};
  const int64_t row_bytes = (in.key.size(3) + in.value.size(3)) * static_cast<int64_t>(sizeof(float));
  Widening result{mean_degree(in), in.key.size(2) * row_bytes};
  result.worth = result.reads >= Widening::kLeastReads && result.head_bytes <= Widening::kLargestHead;
  return result;
}

AttentionInputs widened(AttentionInputs in) {
  for (at::Tensor* x : {&in.query, &in.key, &in.value}) *x = x->to(at::kFloat);
  return in;
}

// Torch's function reads rows as contiguous and does not look: its caller checks, so we do.
AttentionForward complete_forward(const AttentionInputs& in) {
  AttentionForward result;
  std::tie(result.output, result.lse) = at::_scaled_dot_product_flash_attention_for_cpu(
      with_contiguous_rows(in.query), with_contiguous_rows(in.key), with_contiguous_rows(in.value),
      /*dropout_p=*/0, /*is_causal=*/false, /*attn_mask=*/{}, in.scale);
  result.output = result.output.contiguous();
  result.lse = result.lse.contiguous();
  return result;
}

AttentionBackward complete_backward(const AttentionInputs& in, const AttentionForward& forward,
                                    const at::Tensor& grad_output) {
  AttentionBackward result;
  std::tie(result.query, result.key, result.value) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad_output.contiguous(), with_contiguous_rows(in.query), with_contiguous_rows(in.key),
      with_contiguous_rows(in.value), forward.output.contiguous(), forward.lse.contiguous(),
      /*dropout_p=*/0, /*is_causal=*/false,
      /*attn_mask=*/{}, in.scale);
  return result;
}

}  // namespace edgewise::ops

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

AttentionChoice explain_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                  const EdgeSet& edges) {
  ops::AttentionInputs in = ops::attention_inputs(query, key, value, edges, std::nullopt);
  in.gradients_follow =
      at::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad());
  if (query.is_cpu()) {
    const ops::CpuChoice choice = ops::choose_cpu_attention(in);
    AttentionChoice result;
    result.implementation = choice.dense ? "dense" : "gather";
    result.reason = choice.reason;
    result.cpu_level = query.scalar_type() == at::kDouble ? "scalar" : cpu_level();
    result.gather_ms = choice.gather_ms, result.dense_ms = choice.dense_ms;
    result.break_even_density = choice.break_even_density;
    result.is_calibrated = query.scalar_type() == at::kFloat && result.cpu_level.starts_with("avx512");
    if (choice.dense) return result;
    if (query.scalar_type() == at::kBFloat16) {
      const ops::Widening widening = ops::choose_widening(in);
      result.widened = widening.worth;
      result.bf16_rows = describe(widening);
      if (widening.worth) in = ops::widened(std::move(in));  // what is planned for heads is planned in fp32
    }
    const ops::HeadPlan plan = ops::plan_heads(in);
    const auto count = [](const std::vector<char>& heads) {
      return std::count(heads.begin(), heads.end(), 1);
    };
    result.heads = edges.shape().batch * edges.shape().heads;
    result.blocks_forward = count(plan.forward);
    result.blocks_backward = count(plan.backward);
    if (result.blocks_forward > 0) result.implementation = "gather and blocks";
    if (result.blocks_forward == result.heads && result.heads > 0) result.implementation = "blocks";
    // On other levels the choice is the same, by costs that were not measured there.
    const std::string cheaper = result.is_calibrated ? "predicted to be cheaper" : "cheaper on AVX-512";
    if (in.query.scalar_type() != at::kFloat)
      result.reason += ", and blocks of all pairs are of float32 alone";
    else if (result.blocks_forward == 0)
      result.reason += ", and gathering them is " + cheaper + " than blocks of all pairs";
    else
      result.reason += ", and blocks of all pairs are " + cheaper +
                       (result.blocks_forward < result.heads ? " for heads of many edges" : "");
    const int64_t* offsets = edges.row_offsets().const_data_ptr<int64_t>();
    for (int64_t n = 0; n < result.heads; ++n) {
      const int64_t rows = edges.shape().queries;
      const ops::HeadCosts costs = ops::head_costs(in, offsets[(n + 1) * rows] - offsets[n * rows]);
      result.blocks_ms += costs.blocks_forward_ms;
      result.gather_backward_ms += costs.gather_backward_ms;
      result.blocks_backward_ms += costs.blocks_backward_ms;
    }
    return result;
  }
  const ops::CudaChoice choice = ops::choose_cuda_attention(in, nullptr);
  AttentionChoice result;
  result.implementation = choice.kernel.empty() ? "reference" : choice.kernel;
  result.reason = choice.reason;
  return result;
}

}  // namespace edgewise
