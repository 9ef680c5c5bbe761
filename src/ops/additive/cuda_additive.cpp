// Attention with additive scores and sparse products on CUDA. The kernels take rows of 8, 16, ... 256
// numbers: others are padded with zeros, which add nothing to any sum.
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <bit>

#include "graph/cuda_launch.h"
#include "kernels/cuda/additive/additive.h"
#include "ops/additive/additive_views.h"
#include "ops/attention/cuda_inputs.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;

int64_t padded_width(int64_t width) {
  return std::max<int64_t>(8, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(width))));
}
at::Tensor padded(const at::Tensor& rows) {
  const int64_t width = rows.size(3);
  return aligned(padded_width(width) == width ? rows
                                              : at::constant_pad_nd(rows, {0, padded_width(width) - width}));
}

AdditiveInputs for_additive_kernels(AdditiveInputs in) {
  in.value = padded(in.value);
  if (in.dropout_p > 0) in.head_keys = in.head_keys.to(in.value.device(), /*non_blocking=*/true);
  return in;
}

}  // namespace

std::string cuda_additive_refusal(at::Device device, at::ScalarType dtype, int64_t width,
                                  kernels::CreditRule rule) {
  if (const std::string why = cuda_device(device).no_kernels; !why.empty()) return why;
  if (dtype != at::kFloat) return "the kernels compute in float32";
  if (!kernels::cuda::additive_takes(padded_width(width))) return "the kernels take values of at most 256";
  if (rule == kernels::CreditRule::kLeaveOneOut) return "the kernels do not leave out edges one by one";
  return {};
}

AdditiveForward cuda_additive_forward(const AdditiveInputs& given) {
  const c10::cuda::CUDAGuard guard(given.value.device());
  const AdditiveInputs in = for_additive_kernels(given);
  const EdgeShape shape = in.shape();
  AdditiveForward result{
      heads_inside(shape.batch, shape.heads, shape.queries, in.value.size(3), in.value.options()),
      at::empty({shape.batch, shape.heads, shape.queries}, in.value.options())};
  kernels::AdditiveForwardParams<float> params;
  fill_call<float>(params, in);
  params.edges = lists_by_rows(in.edges, shape.heads);
  params.output = rows_to_fill<float>(result.output);
  params.lse = result.lse.mutable_data_ptr<float>();
  check_launch("additive_forward", kernels::cuda::launch_additive_forward(params, current_stream()));
  result.output = result.output.narrow(3, 0, given.value.size(3));
  return result;
}

AdditiveBackward cuda_additive_backward(const AdditiveInputs& given, const AdditiveForward& forward,
                                        const at::Tensor& grad_output) {
  const c10::cuda::CUDAGuard guard(given.value.device());
  const AdditiveInputs in = for_additive_kernels(given);
  const EdgeShape shape = in.shape();
  const at::Tensor output = padded(forward.output), grad = padded(grad_output);
  const auto options = in.value.options().requires_grad(false);
  AdditiveBackward result{at::empty({shape.batch, shape.heads, shape.queries}, options),
                          at::empty({shape.batch, shape.heads, shape.keys}, options),
                          heads_inside(shape.batch, shape.heads, shape.keys, in.value.size(3), options),
                          {},
                          {}};
  const at::Tensor ubar = at::empty_like(result.query_score);
  const float* const lse = forward.lse.const_data_ptr<float>();
  kernels::AdditiveRowsParams<float> rows;
  fill_call<float>(rows, in);
  rows.edges = lists_by_rows(in.edges, shape.heads);
  rows.output = rows_of<float>(output), rows.grad_output = rows_of<float>(grad);
  rows.lse = lse;
  rows.ubar = ubar.mutable_data_ptr<float>();
  rows.query_score_grad = result.query_score.mutable_data_ptr<float>();
  rows.rule = in.rule;
  if (in.rule != kernels::CreditRule::kNone) {
    result.credit = at::empty({in.edges.edge_count()}, options);
    rows.credit = result.credit.mutable_data_ptr<float>();
  }
  check_launch("additive_rows", kernels::cuda::launch_additive_rows(rows, current_stream()));

  kernels::AdditiveColumnsParams<float> columns;
  fill_call<float>(columns, in);
  columns.edges = lists_by_columns(in.edges, shape.heads);
  columns.grad_output = rows.grad_output;
  columns.lse = lse, columns.ubar = rows.ubar;
  columns.key_score_grad = result.key_score.mutable_data_ptr<float>();
  columns.value_grad = rows_to_fill<float>(result.value);
  check_launch("additive_columns", kernels::cuda::launch_additive_columns(columns, current_stream()));
  result.value = result.value.narrow(3, 0, given.value.size(3));

  if (in.probes) {
    result.probe_credit = at::empty({in.probes->edge_count()}, options);
    kernels::AdditiveProbesParams<float> probes;
    fill_call<float>(probes, in);
    probes.edges = lists_by_rows(*in.probes, shape.heads);
    probes.grad_output = rows.grad_output;
    probes.lse = lse, probes.ubar = rows.ubar;
    probes.credit = result.probe_credit.mutable_data_ptr<float>();
    check_launch("additive_probes", kernels::cuda::launch_additive_probes(probes, current_stream()));
  }
  return result;
}

at::Tensor cuda_sparse_product(const SparseInputs& in) {
  const c10::cuda::CUDAGuard guard(in.dense.device());
  const EdgeShape shape = in.entries.shape();
  const int64_t heads = in.dense.size(1);
  const at::Tensor dense = padded(in.dense);
  const at::Tensor keys =
      in.dropout_p > 0 ? in.head_keys.to(dense.device(), /*non_blocking=*/true) : at::Tensor();
  const at::Tensor out = heads_inside(shape.batch, heads, shape.queries, dense.size(3), dense.options());
  kernels::SparseProductParams<float> params;
  params.entries = lists_by_rows(in.entries, heads);
  params.width = dense.size(3);
  params.weights = in.weights.const_data_ptr<float>();
  params.dropout = dropout_params(in.dropout_p, keys);
  params.turned = in.turned;
  params.dense = rows_of<float>(dense);
  params.out = rows_to_fill<float>(out);
  check_launch("sparse_product", kernels::cuda::launch_sparse_product(params, current_stream()));
  return out.narrow(3, 0, in.dense.size(3));
}

}  // namespace edgewise::ops
