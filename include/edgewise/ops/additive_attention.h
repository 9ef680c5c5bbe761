// Attention over edges by additive scores, and sums over edges with weights of one's own: what graph
// attention networks compute. Linear in edges; nothing of the size of the edges is kept for the backward
// pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/edge_learner.h>
#include <edgewise/ops/functional.h>
#include <edgewise/ops/random_stream.h>

#include <optional>

namespace edgewise::functional {

struct AdditiveAttentionOptions {
  double slope = 0.2;    // of LeakyReLU below 0
  double dropout_p = 0;  // of the weights, counter-based from `random`
  RandomStream random;
  Backend backend = Backend::kAuto;  // kAuto, kKernel or kReference
};

// query_score [B, H, L] and key_score [B, H, S], value [B, H, S, Dv] -> output [B, H, L, Dv]:
//
//   s_ij = LeakyReLU(query_score_i + key_score_j);  w_ij = softmax over the row's edges;
//   o_i = sum_j dropout(w_ij) value_j
//
// Edges are those of every head, or of one that all heads share ([B, 1, L, S]). A row without edges gives 0.
// With a learner, whose edges are those of every head, the backward pass also teaches it, as that of
// edge_attention does.
LearnedAttention additive_edge_attention(const at::Tensor& query_score, const at::Tensor& key_score,
                                         const at::Tensor& value, const EdgeSet& edges,
                                         const AdditiveAttentionOptions& options = {},
                                         const EdgeLearner* learner = nullptr);

// A sparse matrix times dense ones, a head each:  out[h, i] = sum over the entries e of row i of
// dropout_h(values[e]) dense[h, column of e].
//
// rows [1, 1, N, F] and columns [1, 1, F, N] are the matrix and its transpose, with values in their orders;
// dense [1, H, F, D] -> [1, H, N, D]. Differentiable in `dense`. Dropout is drawn for every head.
at::Tensor sparse_product(const EdgeSet& rows, const at::Tensor& row_values, const EdgeSet& columns,
                          const at::Tensor& column_values, const at::Tensor& dense, double dropout_p = 0,
                          const RandomStream& random = {}, Backend backend = Backend::kAuto);

}  // namespace edgewise::functional
