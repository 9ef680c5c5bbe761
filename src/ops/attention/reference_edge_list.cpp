// edge_attention in plain ATen, one gathered row per edge.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "ops/attention/reference.h"

namespace edgewise::ops::reference {
namespace {

// Where each edge's query and key rows lie in [B*H*L, .] and [B*H*S, .].
struct EdgePlaces {
  at::Tensor rows;  // [E]
  at::Tensor keys;  // [E]

  explicit EdgePlaces(const EdgeSet& edges) {
    rows = edges.edge_rows();
    keys = rows.div(std::max<int64_t>(edges.shape().queries, 1), "floor") * edges.shape().keys +
           edges.col_indices();
  }
};

at::Tensor flat_rows(const at::Tensor& tensor, at::ScalarType dtype) {  // [B, H, N, W] -> [B*H*N, W]
  return tensor.reshape({-1, tensor.size(3)}).to(dtype);
}

at::Tensor sum_by(const at::Tensor& index, const at::Tensor& values, int64_t size) {
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = size;
  return at::zeros(sizes, values.options()).index_add(0, index, values);
}

at::Tensor max_by(const at::Tensor& index, const at::Tensor& values, int64_t size) {
  return at::full({size}, -kInfinity, values.options()).scatter_reduce(0, index, values, "amax");
}

at::Tensor softmax_by(const at::Tensor& index, const at::Tensor& values, int64_t size) {
  const at::Tensor shares = (values - max_by(index, values, size).index_select(0, index)).exp();
  return shares / sum_by(index, shares, size).index_select(0, index);
}

// Dropout factor of every edge: 0 or 1 / (1 - p).
at::Tensor dropout_factors(const AttentionInputs& in) {
  const at::Tensor words = edge_words(in.head_keys, in.edges);
  const double kept = in.dropout_p < 1 ? 1 / (1 - in.dropout_p) : 0;
  return (words.to(at::kDouble) >= in.dropout_p * 4294967296.0).to(in.accumulator()) * kept;
}

at::Tensor scores_of(const AttentionInputs& in, const EdgePlaces& places) {
  const at::ScalarType dtype = in.accumulator();
  return (flat_rows(in.query, dtype).index_select(0, places.rows) *
          flat_rows(in.key, dtype).index_select(0, places.keys))
             .sum(1) *
         in.scale;
}

// a / (1 - a) (u - ubar), with the mean over a row's other edges formed directly for its largest edge.
at::Tensor leave_one_out(const at::Tensor& scores, const at::Tensor& weights, const at::Tensor& u,
                         const at::Tensor& ubar, const at::Tensor& rows, int64_t row_count) {
  const int64_t edges = scores.size(0);
  const at::Tensor top = max_by(rows, scores, row_count).index_select(0, rows);
  // The first edge that reaches the row's maximum stands apart.
  const at::Tensor order = at::arange(edges, rows.options());
  const at::Tensor candidate = at::where(scores == top, order, at::full_like(order, edges));
  const at::Tensor first = at::full({row_count}, edges, rows.options())
                               .scatter_reduce(0, rows, candidate, "amin")
                               .index_select(0, rows);
  const at::Tensor is_top = order == first;
  const at::Tensor others = scores.masked_fill(is_top, -kInfinity);
  const at::Tensor runner_up = max_by(rows, others, row_count).index_select(0, rows);
  const at::Tensor share = (others - runner_up).exp().masked_fill(is_top, 0).nan_to_num(0);
  const at::Tensor mean =
      (sum_by(rows, share * u, row_count) / sum_by(rows, share, row_count)).index_select(0, rows);
  const at::Tensor only = runner_up == -kInfinity;
  const at::Tensor top_credit = at::where(only, u, weights * (u - mean));
  return at::where(is_top, top_credit, weights / (1 - weights) * (u - ubar.index_select(0, rows)));
}

}  // namespace

std::string edge_list_refusal(const AttentionCall& call) {
  if (call.backend == functional::Backend::kKernel) return "our kernels were asked for";
  return call.backend == functional::Backend::kDense ? "masked matrices were asked for" : "";
}

AttentionForward edge_list_forward(const AttentionInputs& in) {
  const EdgeShape& shape = in.edges.shape();
  const EdgePlaces places(in.edges);
  const at::Tensor scores = scores_of(in, places);
  const at::Tensor top = max_by(places.rows, scores, shape.rows());
  const at::Tensor total =
      sum_by(places.rows, (scores - top.index_select(0, places.rows)).exp(), shape.rows());
  at::Tensor weights = softmax_by(places.rows, scores, shape.rows());
  if (in.dropout_p > 0) weights = weights * dropout_factors(in);
  const at::Tensor values = flat_rows(in.value, in.accumulator()).index_select(0, places.keys);
  const at::Tensor output = sum_by(places.rows, weights.unsqueeze(1) * values, shape.rows());
  return {output.view({shape.batch, shape.heads, shape.queries, in.value.size(3)}).to(in.query.scalar_type()),
          at::where(total > 0, top + total.log(), at::full_like(top, -kInfinity))
              .view({shape.batch, shape.heads, shape.queries})};
}

AttentionBackward edge_list_backward(const AttentionInputs& in, const AttentionForward& forward,
                                     const at::Tensor& grad_output, const at::Tensor&) {
  const EdgeShape& shape = in.edges.shape();
  const at::ScalarType dtype = in.accumulator();
  const EdgePlaces places(in.edges);
  const at::Tensor grad = flat_rows(grad_output, dtype), lse = forward.lse.reshape(-1);
  const at::Tensor ubar = (grad * flat_rows(forward.output, dtype)).sum(1);
  const at::Tensor scores = scores_of(in, places);
  const at::Tensor weights = softmax_by(places.rows, scores, shape.rows());
  const at::Tensor grad_rows = grad.index_select(0, places.rows);
  at::Tensor u = (grad_rows * flat_rows(in.value, dtype).index_select(0, places.keys)).sum(1);
  at::Tensor dropped = weights;
  if (in.dropout_p > 0) {
    const at::Tensor factors = dropout_factors(in);
    u = u * factors;
    dropped = weights * factors;
  }
  const at::Tensor logit_grads = weights * (u - ubar.index_select(0, places.rows));
  const at::Tensor scaled = (logit_grads * in.scale).unsqueeze(1);

  AttentionBackward result;
  const auto shaped = [&](const at::Tensor& rows, int64_t length) {
    return rows.view({shape.batch, shape.heads, length, rows.size(1)}).to(in.query.scalar_type());
  };
  result.query = shaped(
      sum_by(places.rows, scaled * flat_rows(in.key, dtype).index_select(0, places.keys), shape.rows()),
      shape.queries);
  result.key = shaped(
      sum_by(places.keys, scaled * flat_rows(in.query, dtype).index_select(0, places.rows), shape.columns()),
      shape.keys);
  result.value = shaped(sum_by(places.keys, dropped.unsqueeze(1) * grad_rows, shape.columns()), shape.keys);

  switch (in.learns.rule) {
    case kernels::CreditRule::kNone:
      break;
    case kernels::CreditRule::kLogit:
      result.credit = logit_grads;
      break;
    case kernels::CreditRule::kPaper:
      result.credit = logit_grads * scores;
      break;
    case kernels::CreditRule::kLeaveOneOut:
      result.credit = leave_one_out(scores, weights, u, ubar, places.rows, shape.rows());
      break;
  }
  if (in.learns.has_probes) {
    AttentionInputs absent = in;
    absent.edges = *in.learner->probes;
    const EdgePlaces at_probes(absent.edges);
    const at::Tensor probe_u =
        (grad.index_select(0, at_probes.rows) * flat_rows(in.value, dtype).index_select(0, at_probes.keys))
            .sum(1);
    const at::Tensor share = (scores_of(absent, at_probes) - lse.index_select(0, at_probes.rows)).sigmoid();
    result.probe_credit = share * (probe_u - ubar.index_select(0, at_probes.rows));
  }
  return result;
}

}  // namespace edgewise::ops::reference
