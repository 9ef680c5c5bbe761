// Attention with additive scores and sparse products on the CPU: nodes divided among ATen's threads.
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "kernels/cpu/additive/additive_kernels.h"
#include "ops/additive/additive_views.h"
#include "ops/cpu_level_variable.h"

namespace edgewise::ops {
namespace {

template <typename T>
kernels::cpu::AdditiveKernels<T> level_kernels() {
  read_cpu_level_variable();
  return kernels::cpu::active_additive_kernels<T>();
}

// kernel(params, begin, end) over all nodes, in pieces of about so many edges times heads.
template <typename Params>
void for_nodes(const kernels::HeadLists& lists, int64_t edges, kernels::cpu::RangeKernel<Params> kernel,
               const Params& params) {
  constexpr int64_t kPieceCost = 4096, kNodeCost = 4;
  const int64_t nodes = lists.batch * lists.rows;
  if (nodes == 0) return;
  const int64_t own = lists.shared ? edges * lists.heads : edges;
  const int64_t cost = own / nodes + kNodeCost * lists.heads;
  at::parallel_for(0, nodes, std::max<int64_t>(kPieceCost / cost, 1),
                   [&](int64_t begin, int64_t end) { kernel(params, begin, end); });
}

template <typename Body>
auto dispatch(at::ScalarType dtype, const Body& body) {
  return dtype == at::kDouble ? body(double{}) : body(float{});
}

}  // namespace

AdditiveForward cpu_additive_forward(const AdditiveInputs& in) {
  const EdgeShape shape = in.shape();
  AdditiveForward result{
      heads_inside(shape.batch, shape.heads, shape.queries, in.value.size(3), in.value.options()),
      at::empty({shape.batch, shape.heads, shape.queries}, in.value.options())};
  dispatch(in.value.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    kernels::AdditiveForwardParams<T> params;
    fill_call<T>(params, in);
    params.edges = lists_by_rows(in.edges, shape.heads);
    params.output = rows_to_fill<T>(result.output);
    params.lse = result.lse.mutable_data_ptr<T>();
    for_nodes(params.edges, in.edges.edge_count(), level_kernels<T>().forward, params);
  });
  return result;
}

AdditiveBackward cpu_additive_backward(const AdditiveInputs& in, const AdditiveForward& forward,
                                       const at::Tensor& grad_output) {
  const EdgeShape shape = in.shape();
  const auto options = in.value.options().requires_grad(false);
  AdditiveBackward result{at::empty({shape.batch, shape.heads, shape.queries}, options),
                          at::empty({shape.batch, shape.heads, shape.keys}, options),
                          heads_inside(shape.batch, shape.heads, shape.keys, in.value.size(3), options),
                          {},
                          {}};
  const at::Tensor ubar = at::empty_like(result.query_score);
  if (in.rule != kernels::CreditRule::kNone) result.credit = at::empty({in.edges.edge_count()}, options);
  dispatch(in.value.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    const kernels::cpu::AdditiveKernels<T> kernels = level_kernels<T>();
    const T* const lse = forward.lse.const_data_ptr<T>();
    kernels::AdditiveRowsParams<T> rows;
    fill_call<T>(rows, in);
    rows.edges = lists_by_rows(in.edges, shape.heads);
    rows.output = rows_of<T>(forward.output), rows.grad_output = rows_of<T>(grad_output);
    rows.lse = lse;
    rows.ubar = ubar.mutable_data_ptr<T>();
    rows.query_score_grad = result.query_score.mutable_data_ptr<T>();
    rows.rule = in.rule;
    if (result.credit.defined()) rows.credit = result.credit.mutable_data_ptr<T>();
    for_nodes(rows.edges, in.edges.edge_count(), kernels.backward_rows, rows);

    kernels::AdditiveColumnsParams<T> columns;
    fill_call<T>(columns, in);
    columns.edges = lists_by_columns(in.edges, shape.heads);
    columns.grad_output = rows.grad_output;
    columns.lse = lse, columns.ubar = rows.ubar;
    columns.key_score_grad = result.key_score.mutable_data_ptr<T>();
    columns.value_grad = rows_to_fill<T>(result.value);
    for_nodes(columns.edges, in.edges.edge_count(), kernels.backward_columns, columns);

    if (!in.probes) return;
    result.probe_credit = at::empty({in.probes->edge_count()}, options);
    kernels::AdditiveProbesParams<T> probes;
    fill_call<T>(probes, in);
    probes.edges = lists_by_rows(*in.probes, shape.heads);
    probes.grad_output = rows.grad_output;
    probes.lse = lse, probes.ubar = rows.ubar;
    probes.credit = result.probe_credit.template mutable_data_ptr<T>();
    for_nodes(probes.edges, in.probes->edge_count(), kernels.probe_credit, probes);
  });
  return result;
}

at::Tensor cpu_sparse_product(const SparseInputs& in) {
  const EdgeShape shape = in.entries.shape();
  const int64_t heads = in.dense.size(1);
  const at::Tensor out =
      heads_inside(shape.batch, heads, shape.queries, in.dense.size(3), in.dense.options());
  dispatch(in.dense.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    kernels::SparseProductParams<T> params;
    params.entries = lists_by_rows(in.entries, heads);
    params.width = in.dense.size(3);
    params.weights = in.weights.const_data_ptr<T>();
    params.dropout = dropout_params(in.dropout_p, in.head_keys);
    params.turned = in.turned;
    params.dense = rows_of<T>(in.dense);
    params.out = rows_to_fill<T>(out);
    for_nodes(params.entries, in.entries.edge_count(), level_kernels<T>().sparse_product, params);
  });
  return out;
}

}  // namespace edgewise::ops
