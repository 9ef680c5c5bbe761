#include <edgewise/models/input_graph.h>

#include <torch/types.h>

#include <algorithm>

namespace edgewise {
namespace {

EdgeRelations relations_among(int64_t nodes, const at::Tensor& given) {
  TORCH_CHECK_VALUE(given.dim() == 2 && given.size(1) == 2, "InputGraph: expected edges [E, 2]; got ",
                    given.sizes());
  const at::Tensor edges = given.to(at::kLong), all = at::arange(nodes, at::kLong);
  TORCH_CHECK_INDEX(edges.numel() == 0 || ((edges >= 0) & (edges < nodes)).all().item<bool>(),
                    "InputGraph: expected edges between nodes in [0, ", nodes, "); got ",
                    edges.min().item<int64_t>(), " to ", edges.max().item<int64_t>());
  TORCH_CHECK_VALUE(edges.select(1, 0).ne(edges.select(1, 1)).all().item<bool>(),
                    "InputGraph: expected edges without loops, which every node gets; found one");
  const at::Tensor places = at::cat({edges.select(1, 0) * nodes + edges.select(1, 1), all * (nodes + 1)});
  const auto [sorted, order] = places.sort();
  const int64_t count = sorted.size(0);
  TORCH_CHECK_VALUE(count < 2 || (sorted.slice(0, 1) > sorted.slice(0, 0, count - 1)).all().item<bool>(),
                    "InputGraph: expected every edge once; found one twice");
  EdgeRelations result;
  const EdgeShape shape{1, 1, nodes, nodes};
  const at::Tensor rows = sorted.div(std::max<int64_t>(nodes, 1), "floor");
  result.edges = EdgeSet::from_trusted_csr(shape, at::searchsorted(rows, at::arange(nodes + 1, at::kLong)),
                                           sorted.remainder(std::max<int64_t>(nodes, 1)).to(at::kInt));
  result.ids = at::where(order < edges.size(0), kEdgeRelation, kLoopRelation).to(at::kLong);
  return result;
}

}  // namespace

InputGraph::InputGraph(SparseMatrix features, const at::Tensor& edges)
    : features_(std::move(features)), relations_(relations_among(nodes(), edges)) {}

const InputGraph::Parts& InputGraph::on(at::Device device, at::ScalarType dtype) const {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = parts_.try_emplace(c10::str(device, " ", dtype));
  if (is_new)
    found->second = {features_.to(dtype).to(device),
                     {relations_.edges.to(device), relations_.ids.to(device)}};
  return found->second;
}

}  // namespace edgewise
