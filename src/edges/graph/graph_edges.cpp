#include <edgewise/edges/graph_edges.h>

#include <ATen/ATen.h>

#include <algorithm>

#include "edges/graph/graph_requests.h"
#include "edges/range_edges.h"
#include "graph/repeated_heads.h"

namespace edgewise {
namespace {

const EdgeRelations& relations_in(const EdgeRequest& request, const char* name) {
  TORCH_CHECK_VALUE(request.relations && request.query.size(0) == 1, name,
                    ": expected a request for the nodes of one graph, with its edges as relations; got ",
                    request.relations ? "several" : "none");
  return *request.relations;
}

// [1, 1, N, N] from places i * N + j, in any order and any number of times.
EdgeSet from_places(const at::Tensor& places, int64_t nodes) {
  const at::Tensor sorted = std::get<0>(at::_unique(places, /*sorted=*/true));
  const at::Tensor rows = sorted.div(std::max<int64_t>(nodes, 1), "floor");
  return EdgeSet::from_trusted_csr({1, 1, nodes, nodes},
                                   at::searchsorted(rows, at::arange(nodes + 1, places.options())),
                                   sorted.remainder(std::max<int64_t>(nodes, 1)).to(at::kInt));
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

// [N, N] float, sparse: 1 where column j attends to row i, without loops. It stands first in products.
at::Tensor turned_neighbours(const EdgeSet& edges) {
  const at::Tensor rows = edges.edge_rows(), columns = edges.col_indices().to(at::kLong);
  const at::Tensor keep = rows.ne(columns);
  const int64_t nodes = edges.shape().queries;
  return at::sparse_coo_tensor(at::stack({columns.masked_select(keep), rows.masked_select(keep)}),
                               at::ones({keep.sum().item<int64_t>()}, rows.options().dtype(at::kFloat)),
                               {nodes, nodes})
      .coalesce();
}

// Of every row of hop [R, N], the sum of its nodes' neighbours.
at::Tensor one_step(const at::Tensor& turned, const at::Tensor& hop) {
  return at::mm(turned, hop.t()).t();
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
    at::Generator generator = request_generator(request, kernels::Purpose::kEdges);
    const at::Tensor kept = at::rand({edges.edge_count()}, generator, at::kFloat).to(edges.device()) >= drop_;
    const at::Tensor rows = edges.edge_rows();  // a loop's column is its row
    return plain_choice(graph::repeated_heads(edges.kept(kept | rows.eq(edges.col_indices())), heads));
  }
  if (!are_same_edges(from_, edges) || repeated_->shape().heads != heads) {
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
  if (!are_same_edges(from_, edges) || made_->shape().heads != heads) {
    from_ = edges;
    made_ = graph::repeated_heads(extra(request), heads);
  }
  return plain_choice(*made_);
}

EdgeSet RandomExtraEdges::extra(const EdgeRequest& request) {
  const EdgeSet& edges = request.relations->edges;
  const int64_t nodes = edges.shape().queries;
  at::Generator generator = request_generator(request, kernels::Purpose::kEdges);
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
  const at::Tensor turned = turned_neighbours(edges);
  std::vector<at::Tensor> places;
  for (int64_t first = 0; first < nodes; first += kRowsAtOnce) {
    const int64_t last = std::min(first + kRowsAtOnce, nodes);
    const at::Tensor known = known_rows(edges, first, last);
    at::Tensor hop = known.to(at::kFloat);
    hop.diagonal(first).zero_();
    const at::Tensor paths = one_step(turned, hop).masked_fill(known, 0);
    places.push_back(best_places(paths, first, count_));
  }
  return from_places(at::cat(places), nodes);
}

BeyondGraph::BeyondGraph(int64_t hops) : hops_(hops) {
  TORCH_CHECK_VALUE(
      hops == 0 || hops >= 2,
      "BeyondGraph: expected hops of at least 2, since nodes one edge apart are joined already, or "
      "0 for all pairs; got ",
      hops);
}

EdgeChoice BeyondGraph::choose(const EdgeRequest& request) {
  const EdgeSet& edges = relations_in(request, "BeyondGraph").edges;
  const int64_t heads = request.shape().heads, nodes = edges.shape().queries;
  if (are_same_edges(from_, edges) && made_->shape().heads == heads) return plain_choice(*made_);
  const at::Tensor turned = turned_neighbours(edges);
  std::vector<at::Tensor> places;
  for (int64_t first = 0; first < nodes; first += kRowsAtOnce) {
    const int64_t last = std::min(first + kRowsAtOnce, nodes);
    const at::Tensor known = known_rows(edges, first, last);
    at::Tensor reached = known;
    for (int64_t hop = 1; hop < hops_; ++hop)
      reached = reached | one_step(turned, reached.to(at::kFloat)).gt(0);
    if (hops_ == 0) reached = at::ones_like(known);
    const at::Tensor found = (reached & known.logical_not()).nonzero();  // [E, 2]
    places.push_back((found.select(1, 0) + first) * nodes + found.select(1, 1));
  }
  from_ = edges;
  made_ = graph::repeated_heads(from_places(at::cat(places), nodes), heads);
  return plain_choice(*made_);
}

}  // namespace edgewise
