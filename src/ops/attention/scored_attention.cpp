#include <edgewise/ops/scored_attention.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "graph/checks.h"

namespace edgewise::functional {
namespace {

// Row of every edge's key in [B*H*S, .].
at::Tensor key_rows(const EdgeSet& edges) {
  return edges.edge_rows().div(std::max<int64_t>(edges.shape().queries, 1), "floor") * edges.shape().keys +
         edges.col_indices();
}

// At least fp32: the gradients of a row's copies are added up.
at::Tensor wide(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

at::Tensor rows_of(const at::Tensor& heads, const at::Tensor& index) {  // [B, H, N, W] -> [E, W]
  return wide(heads).reshape({-1, heads.size(3)}).index_select(0, index);
}

void check_per_edge(const char* function, const char* name, const at::Tensor& values, const EdgeSet& edges) {
  TORCH_CHECK_VALUE(values.dim() == 1 && values.size(0) == edges.edge_count(), function, ": expected ", name,
                    " [", edges.edge_count(), "], one per edge; got ", values.sizes());
}

}  // namespace

at::Tensor edge_scores(const at::Tensor& query, const at::Tensor& key, const EdgeSet& edges) {
  TORCH_CHECK_VALUE(query.dim() == 4 && key.dim() == 4 && query.size(3) == key.size(3),
                    "edge_scores: expected query [B, H, L, D] and key [B, H, S, D]; got ", query.sizes(),
                    " and ", key.sizes());
  graph::check_same_shape("edge_scores", {query.size(0), query.size(1), query.size(2), key.size(2)},
                          edges.shape());
  return (rows_of(query, edges.edge_rows()) * rows_of(key, key_rows(edges))).sum(1);
}

at::Tensor edge_type_scores(const at::Tensor& query, const at::Tensor& table, const EdgeSet& edges,
                            const at::Tensor& types) {
  const EdgeShape& shape = edges.shape();
  check_per_edge("edge_type_scores", "types", types, edges);
  TORCH_CHECK_VALUE(table.dim() == 3 && (table.size(0) == 1 || table.size(0) == shape.heads) &&
                        table.size(2) == query.size(3),
                    "edge_type_scores: expected a table [H or 1, T, ", query.size(3), "]; got ",
                    table.sizes());
  const at::Tensor rows = edges.edge_rows();
  at::Tensor place = types;
  if (table.size(0) > 1)
    place =
        place + rows.div(std::max<int64_t>(shape.queries, 1), "floor").remainder(shape.heads) * table.size(1);
  return (rows_of(query, rows) * wide(table).flatten(0, 1).index_select(0, place)).sum(1);
}

at::Tensor scored_edge_attention(const at::Tensor& scores, const at::Tensor& value, const EdgeSet& edges,
                                 const at::Tensor& gates) {
  const EdgeShape& shape = edges.shape();
  check_per_edge("scored_edge_attention", "scores", scores, edges);
  if (gates.defined()) check_per_edge("scored_edge_attention", "gates", gates, edges);
  TORCH_CHECK_VALUE(value.dim() == 4 && value.size(0) == shape.batch && value.size(1) == shape.heads &&
                        value.size(2) == shape.keys,
                    "scored_edge_attention: expected value [", shape.batch, ", ", shape.heads, ", ",
                    shape.keys, ", Dv]; got ", value.sizes());
  const at::Tensor rows = edges.edge_rows();
  // The largest score that a gate lets through; a constant for the gradient, as it cancels.
  at::Tensor open = scores.detach();
  if (gates.defined()) open = open.masked_fill(gates.detach() <= 0, -std::numeric_limits<double>::infinity());
  at::Tensor top = at::full({shape.rows()}, -std::numeric_limits<double>::infinity(),
                            scores.options().requires_grad(false))
                       .scatter_reduce(0, rows, open, "amax");
  top = at::where(top.isfinite(), top, at::zeros_like(top)).index_select(0, rows);
  // An edge behind a closed gate may score anything: it must not overflow before it is multiplied by 0.
  at::Tensor shares = (scores - top).clamp_max(0).exp();
  if (gates.defined()) shares = shares * gates;
  const at::Tensor total = at::zeros({shape.rows()}, shares.options()).index_add(0, rows, shares);
  const at::Tensor safe = at::where(total > 0, total, at::ones_like(total));
  const at::Tensor weights = shares / safe.index_select(0, rows);
  const at::Tensor parts = weights.unsqueeze(1) * rows_of(value, key_rows(edges));  // [E, Dv]
  return at::zeros({shape.rows(), value.size(3)}, parts.options())
      .index_add(0, rows, parts)
      .to(value.scalar_type())
      .view({shape.batch, shape.heads, shape.queries, value.size(3)});
}

at::Tensor edge_distances(const EdgeSet& edges, int64_t query_offset) {
  return edges.col_indices().to(at::kLong) -
         edges.edge_rows().remainder(std::max<int64_t>(edges.shape().queries, 1)) - query_offset;
}

}  // namespace edgewise::functional
