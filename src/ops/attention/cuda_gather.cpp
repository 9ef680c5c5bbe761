// edge_attention on CUDA over lists of edges, and what every build with CUDA says of a device.
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include "graph/edge_plan.h"
#include "ops/attention/cuda_inputs.h"

namespace edgewise::ops {
namespace {

using graph::check_launch;
using graph::current_stream;
using kernels::Bf16;

kernels::cuda::EdgeList by_queries(const EdgeSet& edges) {
  return {edges.row_offsets().const_data_ptr<int64_t>(), edges.col_indices().const_data_ptr<int32_t>()};
}
kernels::cuda::EdgeList by_keys(const EdgeSet& edges) {
  const graph::TransposedEdges& turned = graph::EdgePlan::of(edges).transposed();
  return {turned.column_offsets.const_data_ptr<int64_t>(), turned.row_indices.const_data_ptr<int32_t>()};
}

kernels::cuda::GatherDropout dropout_of(const AttentionInputs& in) {
  if (in.dropout_p == 0) return {};
  return {stream_keys(in), in.dropout_p, keep_scale(in)};
}

// Whether the kernel forms the gradients of the memberships itself; else it gives numbers.
bool folds(const AttentionCall& call) {
  return cuda_fold_refusal(call.learns).empty() && !call.learns.has_fixed &&
         kernels::cuda::gather_takes(call.head_dim, padded_clusters(call.learns.clusters));
}

template <typename T>
void forward(const AttentionInputs& in, const AttentionForward& result) {
  kernels::cuda::GatherForwardParams<T> params;
  fill_forward<T>(params, in, result);
  params.edges = by_queries(in.edges);
  params.dropout = dropout_of(in);
  check_launch("gather_forward", kernels::cuda::launch_gather_forward(params, current_stream()));
}

template <typename T>
void backward(CudaBackward& pass) {
  const AttentionInputs& in = pass.in;
  AttentionBackward& result = pass.result;
  kernels::cuda::GatherBackwardParams<T> params;
  fill_backward<T>(params, pass);
  const auto fp32 = pass.forward.lse.options();
  const at::Tensor row_values = at::empty({2, in.shape.rows()}, fp32);
  params.row_values = row_values.mutable_data_ptr<float>();
  params.edges = by_queries(in.edges);
  params.edges_by_keys = by_keys(in.edges);
  params.dropout = dropout_of(in);
  std::optional<LearnerTensors> learner;
  if (in.learns.exists() && in.learns.has_probes) params.probes = by_queries(*in.learner->probes);
  if (in.learns.exists() && folds(in)) {
    learner.emplace(pass);
    learner->fill<T>(params, *in.learner);
    if (in.learns.has_probes) params.probes_by_keys = by_keys(*in.learner->probes);
    learner->give(result, in.learns.clusters);
  } else if (in.learns.exists()) {
    params.rule = in.learns.rule;
    result.credit = at::empty({in.edges.edge_count()}, fp32);
    params.edge_credit = result.credit.mutable_data_ptr<float>();
    if (in.learns.has_probes) {
      result.probe_credit = at::empty({in.learner->probes->edge_count()}, fp32);
      params.probe_credit = result.probe_credit.mutable_data_ptr<float>();
    }
  }
  check_launch("gather_backward", kernels::cuda::launch_gather_backward(params, current_stream()));
}

}  // namespace

CudaDevice cuda_device(at::Device device) {
  if (!graph::is_hopper(device)) return {"the kernels are built for Hopper (compute capability 9.0)", 0};
  return {"", static_cast<int64_t>(at::cuda::getDeviceProperties(device.index())->totalGlobalMem)};
}

std::optional<int64_t> cuda_edge_count(const EdgeSet& edges) {
  if (edges.has_csr()) return edges.edge_count();
  const c10::cuda::CUDAGuard guard(edges.device());
  if (graph::is_capturing()) return std::nullopt;
  return edges.edges_per_head().sum().item<int64_t>();
}

AttentionForward cuda_gather_forward(const AttentionInputs& given) {
  const c10::cuda::CUDAGuard guard(given.query.device());
  const AttentionInputs in = for_kernels(given);
  const AttentionForward result = empty_forward(in);
  in.dtype == at::kFloat ? forward<float>(in, result) : forward<Bf16>(in, result);
  return result;
}

AttentionBackward cuda_gather_backward(const AttentionInputs& given, const AttentionForward& forward,
                                       const at::Tensor& grad_output, const at::Tensor& density_grad) {
  const c10::cuda::CUDAGuard guard(given.query.device());
  CudaBackward pass(given, forward, grad_output, density_grad);
  given.dtype == at::kFloat ? backward<float>(pass) : backward<Bf16>(pass);
  return pass.result;
}

}  // namespace edgewise::ops
