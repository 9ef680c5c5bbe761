// The CPU kernels behind edge_attention: tensors to raw pointers, rows divided among ATen's threads.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "kernels/cpu/edge_attention.h"
#include "kernels/cpu/sparse_product.h"
#include "ops/attention_impl.h"
#include "ops/kernel_views.h"
#include "ops/reference.h"

namespace edgewise::ops {
namespace {

using kernels::Accumulator;

// Enough rows per task that a task is worth starting, few enough that uneven rows even out.
constexpr int64_t kRowGrain = 32;

template <typename Body>
void for_rows(int64_t rows, const Body& body) {
  at::parallel_for(0, rows, kRowGrain, [&](int64_t begin, int64_t end) { body(begin, end); });
}

template <typename T, typename Params>
void set_common(Params& params, const AttentionInputs& in) {
  params.head_dim = in.query.size(3);
  params.value_dim = in.value.size(3);
  params.scale = in.scale;
  params.query = head_view<T>(in.query);
  params.key = head_view<T>(in.key);
  params.value = head_view<T>(in.value);
}

kernels::DropoutParams dropout_params(const AttentionInputs& in) {
  if (in.dropout_p <= 0) return {};
  return {in.dropout_p, reinterpret_cast<const uint64_t*>(in.head_keys.const_data_ptr<int64_t>())};
}

AttentionInputs row_contiguous(AttentionInputs in) {
  in.query = with_contiguous_rows(in.query);
  in.key = with_contiguous_rows(in.key);
  in.value = with_contiguous_rows(in.value);
  return in;
}

enum class Side { kRows, kColumns };

// factor * G dense (rows) or factor * G^T dense (columns).
template <typename T>
at::Tensor sparse_times_dense(Side side, const EdgeSet& edges, const at::Tensor& values,
                              const at::Tensor& dense, double factor) {
  const EdgeShape& shape = edges.shape();
  const int64_t length = side == Side::kRows ? shape.queries : shape.keys, width = dense.size(3);
  const at::Tensor rows = with_contiguous_rows(dense);
  at::Tensor out = at::empty({shape.batch, shape.heads, length, width}, dense.options());
  kernels::GatherSumParams<T> params;
  params.heads = shape.heads;
  params.rows_per_head = length;
  params.width = width;
  params.factor = factor;
  if (side == Side::kRows) {
    params.offsets = edges.row_offsets().const_data_ptr<int64_t>();
    params.indices = edges.col_indices().const_data_ptr<int32_t>();
  } else {
    const TransposedEdges& transposed = edges.transposed();
    params.offsets = transposed.column_offsets.const_data_ptr<int64_t>();
    params.indices = transposed.row_indices.const_data_ptr<int32_t>();
    params.ids = transposed.edge_ids.const_data_ptr<int64_t>();
  }
  params.coefficients = values.const_data_ptr<Accumulator<T>>();
  params.dense = head_view<T>(rows);
  params.out = data_of<T>(out);
  for_rows(shape.batch * shape.heads * length,
           [&](int64_t begin, int64_t end) { kernels::cpu::gather_sum(params, begin, end); });
  return out;
}

}  // namespace

AttentionForward kernel_forward(const AttentionInputs& given) {
  const AttentionInputs in = row_contiguous(given);
  const EdgeShape& shape = in.edges.shape();
  AttentionForward result;
  result.output = at::empty({shape.batch, shape.heads, shape.queries, in.value.size(3)}, in.query.options());
  result.lse =
      at::empty({shape.batch, shape.heads, shape.queries}, in.query.options().dtype(in.accumulator()));
  dispatch_kernel_type(in.query.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    kernels::AttentionForwardParams<T> params;
    set_common<T>(params, in);
    params.edges = csr_view(in.edges);
    params.dropout = dropout_params(in);
    params.output = data_of<T>(result.output);
    params.lse = result.lse.mutable_data_ptr<Accumulator<T>>();
    for_rows(shape.rows(),
             [&](int64_t begin, int64_t end) { kernels::cpu::edge_attention_forward(params, begin, end); });
  });
  return result;
}

AttentionBackward kernel_backward(const AttentionInputs& given, const AttentionForward& forward,
                                  const at::Tensor& grad_output, const CreditRequest& credit) {
  const AttentionInputs in = row_contiguous(given);
  const EdgeShape& shape = in.edges.shape();
  const at::Tensor grad = grad_output.contiguous(), output = forward.output.contiguous();
  const auto per_edge = [&](int64_t count) {
    return at::empty({count}, in.query.options().dtype(in.accumulator()));
  };
  at::Tensor weights = per_edge(in.edges.edge_count()), logit_grads = per_edge(in.edges.edge_count());
  AttentionBackward result;
  if (credit.rule != kernels::CreditRule::kNone) result.credit = per_edge(in.edges.edge_count());
  dispatch_kernel_type(in.query.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    kernels::AttentionBackwardParams<T> params;
    set_common<T>(params, in);
    params.edges = csr_view(in.edges);
    params.dropout = dropout_params(in);
    params.grad_output = const_data_of<T>(grad);
    params.output = const_data_of<T>(output);

    params.weights = weights.mutable_data_ptr<Accumulator<T>>();
    params.logit_grads = logit_grads.mutable_data_ptr<Accumulator<T>>();
    params.rule = credit.rule;
    if (result.credit.defined()) params.credit = result.credit.mutable_data_ptr<Accumulator<T>>();
    for_rows(shape.rows(),
             [&](int64_t begin, int64_t end) { kernels::cpu::edge_attention_backward(params, begin, end); });

    result.query = sparse_times_dense<T>(Side::kRows, in.edges, logit_grads, in.key, in.scale);
    result.key = sparse_times_dense<T>(Side::kColumns, in.edges, logit_grads, in.query, in.scale);
    result.value = sparse_times_dense<T>(Side::kColumns, in.edges, weights, grad, 1);

    if (credit.probes) {
      result.probe_credit = per_edge(credit.probes->edge_count());
      kernels::ProbeCreditParams<T> probe;
      set_common<T>(probe, in);
      probe.probes = csr_view(*credit.probes);
      probe.grad_output = params.grad_output;
      probe.output = params.output;
      probe.lse = forward.lse.const_data_ptr<Accumulator<T>>();
      probe.credit = result.probe_credit.mutable_data_ptr<Accumulator<T>>();
      for_rows(shape.rows(),
               [&](int64_t begin, int64_t end) { kernels::cpu::probe_credit(probe, begin, end); });
    }
  });
  return result;
}

at::Tensor multiply_rows(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense) {
  if (!dense.is_cpu()) return reference::multiply_rows(edges, values, dense);
  return dispatch_kernel_type(dense.scalar_type(), [&](auto tag) {
    return sparse_times_dense<decltype(tag)>(Side::kRows, edges, values, dense, 1);
  });
}

at::Tensor multiply_columns(const EdgeSet& edges, const at::Tensor& values, const at::Tensor& dense) {
  if (!dense.is_cpu()) return reference::multiply_columns(edges, values, dense);
  return dispatch_kernel_type(dense.scalar_type(), [&](auto tag) {
    return sparse_times_dense<decltype(tag)>(Side::kColumns, edges, values, dense, 1);
  });
}

at::Tensor edge_dot(const EdgeSet& edges, const at::Tensor& left, const at::Tensor& right) {
  if (!left.is_cpu()) return reference::edge_dot(edges, left, right);
  const at::Tensor left_rows = with_contiguous_rows(left), right_rows = with_contiguous_rows(right);
  return dispatch_kernel_type(left.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    at::Tensor out = at::empty({edges.edge_count()},
                               left.options().dtype(c10::CppTypeToScalarType<Accumulator<T>>::value));
    kernels::EdgeDotParams<T> params;
    params.edges = csr_view(edges);
    params.width = left.size(3);
    params.left = head_view<T>(left_rows);
    params.right = head_view<T>(right_rows);
    params.out = out.mutable_data_ptr<Accumulator<T>>();
    for_rows(edges.shape().rows(),
             [&](int64_t begin, int64_t end) { kernels::cpu::edge_dot(params, begin, end); });
    return out;
  });
}

}  // namespace edgewise::ops
