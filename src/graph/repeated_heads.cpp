#include "graph/repeated_heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <vector>

namespace edgewise::graph {

EdgeSet repeated_heads(const EdgeSet& edges, int64_t heads) {
  const EdgeShape shape = edges.shape();
  TORCH_CHECK_VALUE(shape.heads == 1, "repeated_heads: expected edges of one head; got ", to_string(shape));
  if (heads == 1) return edges;
  const at::Tensor degrees = edges.degrees().expand({shape.batch, heads, shape.queries}).reshape({-1});
  const at::Tensor offsets = at::cat({at::zeros({1}, degrees.options()), degrees.cumsum(0)});
  std::vector<at::Tensor> columns;
  for (int64_t item = 0; item < shape.batch; ++item) {
    const at::Tensor& rows = edges.row_offsets();
    const auto begin = rows[item * shape.queries].item<int64_t>(),
               end = rows[(item + 1) * shape.queries].item<int64_t>();
    columns.push_back(edges.col_indices().slice(0, begin, end).repeat({heads}));
  }
  EdgeShape result = shape;
  result.heads = heads;
  if (columns.empty()) return EdgeSet::none(result, edges.device());
  return EdgeSet::from_trusted_csr(result, offsets, at::cat(columns));
}

}  // namespace edgewise::graph
