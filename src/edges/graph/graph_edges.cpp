#include <edgewise/edges/graph_edges.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <bit>

#include "edges/range_edges.h"
#include "graph/repeated_heads.h"
#include "ops/streams.h"

namespace edgewise {
namespace {

const EdgeRelations& relations_in(const EdgeRequest& request, const char* name) {
  TORCH_CHECK_VALUE(request.relations && request.query.size(0) == 1, name,
                    ": expected a request for the nodes of one graph, with its edges as relations; got ",
                    request.relations ? "several" : "none");
  return *request.relations;
}

bool is_same(const std::optional<EdgeSet>& one, const EdgeSet& other) {
  return one && one->col_indices().is_same(other.col_indices());
}

// [1, 1, N, N] from places i * N + j, in any order and any number of times.
EdgeSet from_places(const at::Tensor& places, int64_t nodes) {
  const at::Tensor sorted = std::get<0>(at::_unique(places, /*sorted=*/true));
  const at::Tensor rows = sorted.div(std::max<int64_t>(nodes, 1), "floor");
  return EdgeSet::from_trusted_csr({1, 1, nodes, nodes},
                                   at::searchsorted(rows, at::arange(nodes + 1, places.options())),
                                   sorted.remainder(std::max<int64_t>(nodes, 1)).to(at::kInt));
}

// For draws that a request's random stream decides.
at::Generator generator_of(const EdgeRequest& request) {
  const at::Tensor key = ops::stream_keys(request.random, kernels::Purpose::kEdges, {1, 1, 0, 0});
  return at::detail::createCPUGenerator(std::bit_cast<uint64_t>(key.item<int64_t>()));
}

// The `count` largest scores of every row above 0, as pairs that `known` has not. scores [rows, N] of the
// nodes from `first` on; changed.
at::Tensor best_places(at::Tensor scores, int64_t first, int64_t count) {
  const int64_t nodes = scores.size(1);
  const auto [best, columns] = scores.topk(std::min(count, nodes), 1);
  const at::Tensor rows = at::arange(first, first + scores.size(0), columns.options()).unsqueeze(1);
  return (rows * nodes + columns).masked_select(best > 0);
}

// rows first .. last of the relations as a mask [last - first, N].
at::Tensor known_rows(const EdgeSet& edges, int64_t first, int64_t last) {
  const at::Tensor &offsets = edges.row_offsets(), &columns = edges.col_indices();
  const auto begin = offsets[first].item<int64_t>(), end = offsets[last].item<int64_t>();
  const at::Tensor rows = at::repeat_interleave(offsets.slice(0, first, last + 1).diff());
  const at::Tensor mask = at::zeros({last - first, edges.shape().keys}, columns.options().dtype(at::kBool));
  return mask.index_put_({rows, columns.slice(0, begin, end).to(at::kLong)}, at::ones({}, mask.options()));
}

constexpr int64_t kRowsAtOnce = 512;

}  // namespace

GraphEdges::GraphEdges(double drop) : drop_(drop) {
  TORCH_CHECK_VALUE(drop >= 0 && drop < 1, "GraphEdges: expected a share in [0, 1) to drop; got ", drop);
}

EdgeChoice GraphEdges::choose(const EdgeRequest& request) {
  const EdgeRelations& relations = relations_in(request, "GraphEdges");
  const EdgeSet& edges = relations.edges;
  const int64_t heads = request.shape().heads;
  if (drop_ > 0 && is_training()) {
    at::Generator generator = generator_of(request);
    const at::Tensor kept = at::rand({edges.edge_count()}, generator, at::kFloat).to(edges.device()) >= drop_;
    const at::Tensor rows = edges.edge_rows();  // a loop's column is its row
    return plain_choice(graph::repeated_heads(edges.kept(kept | rows.eq(edges.col_indices())), heads));
  }
  if (!is_same(from_, edges) || repeated_->shape().heads != heads) {
    from_ = edges;
    repeated_ = graph::repeated_heads(edges, heads);
  }
  return plain_choice(*repeated_);
}

ExtraEdges::ExtraEdges(int64_t count) : count_(count) {
  TORCH_CHECK_VALUE(count >= 1, "ExtraEdges: expected at least one edge a node; got ", count);
}

EdgeChoice ExtraEdges::choose(const EdgeRequest& request) {
  const EdgeSet& edges = relations_in(request, "ExtraEdges").edges;
  const int64_t heads = request.shape().heads;
  if (is_drawn()) return plain_choice(graph::repeated_heads(extra(request), heads));
  if (!is_same(from_, edges) || made_->shape().heads != heads) {
    from_ = edges;
    made_ = graph::repeated_heads(extra(request), heads);
  }
  return plain_choice(*made_);
}

EdgeSet RandomExtraEdges::extra(const EdgeRequest& request) {
  const EdgeSet& edges = request.relations->edges;
  const int64_t nodes = edges.shape().queries;
  at::Generator generator = generator_of(request);
  const at::Tensor columns = at::randint(0, nodes, {nodes, count_}, generator, at::kLong),
                   rows = at::arange(nodes).unsqueeze(1);
  return from_places((rows * nodes + columns).flatten().to(edges.device()), nodes).minus(edges);
}

EdgeSet NearestEdges::extra(const EdgeRequest& request) {
  TORCH_CHECK_VALUE(request.features, "NearestEdges: expected the nodes' features; got none");
  const SparseMatrix& features = *request.features;
  const EdgeSet& edges = request.relations->edges;
  const int64_t nodes = edges.shape().queries;
  const at::Tensor rows = features.rows.edge_rows(), columns = features.rows.col_indices().to(at::kLong);
  const at::Tensor dense = at::zeros({nodes, features.rows.shape().keys}, features.row_values.options());
  dense.index_put_({rows, columns}, features.row_values);
  const at::Tensor unit = dense / dense.norm(2, {1}, true).clamp_min(1e-12);
  std::vector<at::Tensor> places;
  for (int64_t first = 0; first < nodes; first += kRowsAtOnce) {
    const int64_t last = std::min(first + kRowsAtOnce, nodes);
    const at::Tensor scores =
        at::mm(unit.slice(0, first, last), unit.t()).masked_fill_(known_rows(edges, first, last), -1);
    places.push_back(best_places(scores, first, count_));
  }
  return from_places(at::cat(places), nodes);
}

EdgeSet TwoHopEdges::extra(const EdgeRequest& request) {
  const EdgeSet& edges = request.relations->edges;
  const int64_t nodes = edges.shape().queries;
  const at::Tensor rows = edges.edge_rows(), columns = edges.col_indices().to(at::kLong);
  const at::Tensor keep = rows.ne(columns);
  const at::Tensor adjacency =
      at::sparse_coo_tensor(at::stack({rows.masked_select(keep), columns.masked_select(keep)}),
                            at::ones({keep.sum().item<int64_t>()}, rows.options().dtype(at::kFloat)),
                            {nodes, nodes})
          .coalesce();
  std::vector<at::Tensor> places;
  for (int64_t first = 0; first < nodes; first += kRowsAtOnce) {
    const int64_t last = std::min(first + kRowsAtOnce, nodes);
    const at::Tensor known = known_rows(edges, first, last);
    // Paths: the sum of the rows of the neighbours. By the transpose, since a sparse matrix stands first.
    at::Tensor hop = known.to(at::kFloat);
    hop.diagonal(first).zero_();
    const at::Tensor paths = at::mm(adjacency.t(), hop.t()).t().masked_fill(known, 0);
    places.push_back(best_places(paths, first, count_));
  }
  return from_places(at::cat(places), nodes);
}

}  // namespace edgewise
