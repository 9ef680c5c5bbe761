// Attention with additive scores and sparse products in plain ATen, a gathered row per edge: the equations of
// kernels/cpu/additive/additive_level.cpp.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "graph/repeated_heads.h"
#include "ops/additive/additive_call.h"
#include "ops/attention/reference.h"

namespace edgewise::ops::reference {
namespace {

at::Tensor sum_at(const at::Tensor& index, const at::Tensor& values, int64_t size) {
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = size;
  return at::zeros(sizes, values.options()).index_add(0, index, values);
}
at::Tensor max_at(const at::Tensor& index, const at::Tensor& values, int64_t size) {
  return at::full({size}, -kInfinity, values.options()).scatter_reduce(0, index, values, "amax");
}
at::Tensor flat(const at::Tensor& heads) {  // [B, H, N, W] -> [B*H*N, W]
  return heads.reshape({-1, heads.size(3)});
}

// 0 or 1 / (1 - p), by the random words of dropout.
at::Tensor factors_of(const at::Tensor& words, double p, at::ScalarType dtype) {
  const double kept = p < 1 ? 1 / (1 - p) : 0;
  return (words.to(at::kDouble) >= p * 4294967296.0).to(dtype) * kept;
}
at::Tensor kept_factors(const at::Tensor& head_keys, const EdgeSet& edges, double p, at::ScalarType dtype) {
  return factors_of(edge_words(head_keys, edges), p, dtype);
}

// Edges of every head, with the rows of their two ends and what their scores are.
struct ScoredEdges {
  EdgeSet edges;
  at::Tensor rows, keys;    // [E]
  at::Tensor sums, scores;  // [E] before and behind LeakyReLU

  ScoredEdges(const AdditiveInputs& in, const EdgeSet& given)
      : edges(given.shape().heads == in.value.size(1) ? given
                                                      : graph::repeated_heads(given, in.value.size(1))) {
    const EdgeShape shape = edges.shape();
    rows = edges.edge_rows();
    keys = rows.div(std::max<int64_t>(shape.queries, 1), "floor") * shape.keys + edges.col_indices();
    sums = in.query_score.reshape(-1).index_select(0, rows) + in.key_score.reshape(-1).index_select(0, keys);
    scores = at::where(sums > 0, sums, sums * in.slope);
  }
};

// a / (1 - a) (u - ubar); of a row's largest edge a (u - mean of u over the others), formed directly.
at::Tensor left_out(const ScoredEdges& all, const at::Tensor& weights, const at::Tensor& u,
                    const at::Tensor& ubar, int64_t row_count) {
  const int64_t count = u.size(0);
  const at::Tensor top = max_at(all.rows, all.scores, row_count).index_select(0, all.rows);
  const at::Tensor order = at::arange(count, all.rows.options());
  const at::Tensor first =
      at::full({row_count}, count, all.rows.options())
          .scatter_reduce(0, all.rows, at::where(all.scores == top, order, at::full_like(order, count)),
                          "amin")
          .index_select(0, all.rows);
  const at::Tensor is_top = order == first, others = all.scores.masked_fill(is_top, -kInfinity);
  const at::Tensor next = max_at(all.rows, others, row_count).index_select(0, all.rows);
  const at::Tensor share = (others - next).exp().masked_fill(is_top, 0).nan_to_num(0);
  const at::Tensor mean =
      (sum_at(all.rows, share * u, row_count) / sum_at(all.rows, share, row_count)).index_select(0, all.rows);
  return at::where(is_top, at::where(next == -kInfinity, u, weights * (u - mean)),
                   weights / (1 - weights) * (u - ubar.index_select(0, all.rows)));
}

}  // namespace

AdditiveForward additive_forward(const AdditiveInputs& in) {
  const EdgeShape shape = in.shape();
  const ScoredEdges all(in, in.edges);
  const at::Tensor top = max_at(all.rows, all.scores, shape.rows());
  at::Tensor shares = (all.scores - top.index_select(0, all.rows)).exp();
  const at::Tensor total = sum_at(all.rows, shares, shape.rows());
  at::Tensor weights = shares / total.index_select(0, all.rows);
  if (in.dropout_p > 0)
    weights = weights * kept_factors(in.head_keys, all.edges, in.dropout_p, weights.scalar_type());
  const at::Tensor output =
      sum_at(all.rows, weights.unsqueeze(1) * flat(in.value).index_select(0, all.keys), shape.rows());
  return {output.view({shape.batch, shape.heads, shape.queries, in.value.size(3)}),
          at::where(total > 0, top + total.log(), at::full_like(top, -kInfinity))
              .view({shape.batch, shape.heads, shape.queries})};
}

AdditiveBackward additive_backward(const AdditiveInputs& in, const AdditiveForward& forward,
                                   const at::Tensor& grad_output) {
  const EdgeShape shape = in.shape();
  const ScoredEdges all(in, in.edges);
  const at::Tensor grad = flat(grad_output), value = flat(in.value), lse = forward.lse.reshape(-1);
  const at::Tensor ubar = (grad * flat(forward.output)).sum(1);
  const at::Tensor weights = (all.scores - lse.index_select(0, all.rows)).exp();
  const at::Tensor grad_rows = grad.index_select(0, all.rows);
  at::Tensor u = (grad_rows * value.index_select(0, all.keys)).sum(1), dropped = weights;
  if (in.dropout_p > 0) {
    const at::Tensor factors = kept_factors(in.head_keys, all.edges, in.dropout_p, weights.scalar_type());
    u = u * factors;
    dropped = weights * factors;
  }
  const at::Tensor numbers = weights * (u - ubar.index_select(0, all.rows));
  const at::Tensor sums = at::where(all.sums > 0, numbers, numbers * in.slope);
  AdditiveBackward result{
      sum_at(all.rows, sums, shape.rows()).view({shape.batch, shape.heads, shape.queries}),
      sum_at(all.keys, sums, shape.columns()).view({shape.batch, shape.heads, shape.keys}),
      sum_at(all.keys, dropped.unsqueeze(1) * grad_rows, shape.columns())
          .view({shape.batch, shape.heads, shape.keys, in.value.size(3)}),
      {},
      {}};
  switch (in.rule) {
    case kernels::CreditRule::kNone:
      break;
    case kernels::CreditRule::kLogit:
      result.credit = numbers;
      break;
    case kernels::CreditRule::kPaper:
      result.credit = numbers * all.scores;
      break;
    case kernels::CreditRule::kLeaveOneOut:
      result.credit = left_out(all, weights, u, ubar, shape.rows());
      break;
  }
  if (in.probes) {
    const ScoredEdges probes(in, *in.probes);
    const at::Tensor probe_u =
        (grad.index_select(0, probes.rows) * value.index_select(0, probes.keys)).sum(1);
    result.probe_credit = (probes.scores - lse.index_select(0, probes.rows)).sigmoid() *
                          (probe_u - ubar.index_select(0, probes.rows));
  }
  return result;
}

at::Tensor sparse_product(const SparseInputs& in) {
  const int64_t heads = in.dense.size(1);
  const EdgeSet entries = graph::repeated_heads(in.entries, heads);
  const EdgeShape shape = entries.shape();
  const at::Tensor rows = entries.edge_rows(), columns = entries.col_indices().to(at::kLong);
  const at::Tensor head = rows.div(std::max<int64_t>(shape.queries, 1), "floor");
  at::Tensor weights = in.weights.repeat({heads});
  if (in.dropout_p > 0) {
    // The pair of the matrix itself, whichever way its entries are listed.
    const at::Tensor node = rows.remainder(std::max<int64_t>(shape.queries, 1));
    const at::Tensor row = in.turned ? columns : node, column = in.turned ? node : columns;
    const at::Tensor keys = in.head_keys.to(head.device()).index_select(0, head);
    weights = weights * factors_of(words_at(keys, row, column), in.dropout_p, weights.scalar_type());
  }
  const at::Tensor parts = weights.unsqueeze(1) * flat(in.dense).index_select(0, head * shape.keys + columns);
  return sum_at(rows, parts, shape.rows()).view({1, heads, shape.queries, in.dense.size(3)});
}

}  // namespace edgewise::ops::reference
