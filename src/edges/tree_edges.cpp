// The graph of BP-Transformer.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/tensor.h>

#include <edgewise/edges/special_case_edges.h>

#include <algorithm>

#include "edges/range_edges.h"

namespace edgewise {
namespace {

struct Neighbour {
  int64_t node, type;
};

// The neighbours of one token.
class TokenNeighbours {
 public:
  TokenNeighbours(const TreeEdgesOptions& options, const std::vector<int64_t>& sizes,
                  const std::vector<int64_t>& first_node)
      : options_(options), sizes_(sizes), first_node_(first_node) {}

  std::vector<Neighbour> of(int64_t token) {
    found_.assign(1, {token, 0});
    walk(token, /*to_left=*/true);
    if (!options_.is_causal) walk(token, /*to_left=*/false);
    std::ranges::sort(found_, {}, &Neighbour::node);
    return std::move(found_);
  }

 private:
  // Outwards from the token, `step` nodes a level, then a level up. The pointer is the next node not yet
  // covered. Where its sibling nearer to the token is covered already, its parent would cover that one twice:
  // the node itself is then taken in the parent's place.
  void walk(int64_t token, bool to_left) {
    const int64_t direction = to_left ? -1 : 1;
    int64_t pointer = token + direction, child = -1;
    for (size_t level = 0; level < sizes_.size() && pointer >= 0 && pointer < sizes_[level]; ++level) {
      for (int64_t s = 0; s < options_.step; ++s) {
        const int64_t node = pointer + direction * s;
        if (node < 0 || node >= sizes_[level]) break;
        const int64_t type =
            (2 * options_.step + 1) * std::min<int64_t>(static_cast<int64_t>(level), options_.clip) + 2 * s +
            (to_left ? 1 : 2);
        if (s > 0 || child < 0) {
          found_.push_back({first_node_[level] + node, type});
        } else if (child < sizes_[level - 1]) {  // on the right of an odd level there may be none
          found_.push_back({first_node_[level - 1] + child, type});
        }
      }
      pointer += direction * options_.step;
      if (pointer < 0) return;
      child = pointer % 2 == (to_left ? 0 : 1) ? pointer : -1;
      pointer /= 2;
    }
  }

  const TreeEdgesOptions& options_;
  const std::vector<int64_t>&sizes_, &first_node_;
  std::vector<Neighbour> found_;
};

}  // namespace

TreeGraph tree_graph(const TreeEdgesOptions& options) {
  TORCH_CHECK_VALUE(
      options.tokens >= 1 && options.step >= 1 && options.clip >= 0,
      "tree_graph: expected at least 1 token, a step of at least 1 and a clip of at least 0; got ",
      options.tokens, ", ", options.step, " and ", options.clip);
  TreeGraph graph;
  std::vector<int64_t> first_node;
  for (int64_t size = options.tokens;; size = (size + 1) / 2) {
    first_node.push_back(graph.nodes);
    graph.level_sizes.push_back(size);
    graph.nodes += size;
    if (size == 1) break;
  }
  std::vector<int64_t> offsets = {0}, types;
  std::vector<int32_t> columns;
  TokenNeighbours neighbours(options, graph.level_sizes, first_node);
  for (int64_t token = 0; token < options.tokens; ++token) {
    for (const Neighbour& found : neighbours.of(token)) {
      columns.push_back(static_cast<int32_t>(found.node));
      types.push_back(found.type);
    }
    offsets.push_back(static_cast<int64_t>(columns.size()));
  }
  for (size_t level = 1; level < graph.level_sizes.size(); ++level) {
    const int64_t type =
        (2 * options.step + 1) * std::min<int64_t>(static_cast<int64_t>(level), options.clip);
    for (int64_t node = 0; node < graph.level_sizes[level]; ++node) {
      const int64_t end = std::min((node + 1) << level, options.tokens);
      for (int64_t token = node << level; token < end; ++token) {
        columns.push_back(static_cast<int32_t>(token));
        types.push_back(type);
      }
      offsets.push_back(static_cast<int64_t>(columns.size()));
    }
  }
  graph.row_offsets = at::tensor(offsets, at::kLong);
  graph.col_indices = at::tensor(columns, at::kInt);
  graph.types = at::tensor(types, at::kLong);
  return graph;
}

TreeEdges::TreeEdges(TreeEdgesOptions given) : options(given), graph_(tree_graph(given)) {}

EdgeChoice TreeEdges::choose(const EdgeRequest& request) {
  const EdgeShape shape = request.shape();
  TORCH_CHECK_VALUE(shape.queries == graph_.nodes && shape.keys == graph_.nodes,
                    "TreeEdges: expected requests over all ", graph_.nodes, " nodes of a tree of ",
                    options.tokens, " tokens; got ", to_string(shape));
  TORCH_CHECK_VALUE(
      !request.is_causal,
      "TreeEdges: expected the option is_causal for a causal tree; got a causal request, which would "
      "compare the numbers of nodes");
  const int64_t heads = shape.batch * shape.heads;
  const at::Tensor first = at::arange(heads, graph_.row_offsets.options()).unsqueeze(1) * graph_.edge_count();
  const at::Tensor begins = (graph_.row_offsets.narrow(0, 0, graph_.nodes).unsqueeze(0) + first).flatten();
  const at::Tensor end = at::tensor({heads * graph_.edge_count()}, at::kLong);
  const EdgeSet edges =
      EdgeSet::from_trusted_csr(shape, at::cat({begins, end}), graph_.col_indices.repeat({heads}));
  return plain_choice(restricted(edges.to(request.query.device()), request));
}

at::Tensor TreeEdges::node_mask(const at::Tensor& token_mask) const {
  TORCH_CHECK_VALUE(token_mask.dim() == 2 && token_mask.size(1) == options.tokens,
                    "TreeEdges: expected a mask [B, ", options.tokens, "]; got ", token_mask.sizes());
  std::vector<at::Tensor> levels = {token_mask};
  while (levels.back().size(1) > 1) {
    at::Tensor below = levels.back();
    if (below.size(1) % 2 == 1) below = at::cat({below, at::zeros_like(below.narrow(1, 0, 1))}, 1);
    levels.push_back(below.unflatten(1, {-1, 2}).any(2));
  }
  return at::cat(levels, 1);
}

at::Tensor TreeEdges::types(const EdgeSet& edges) const {
  // The position of every edge within the graph of one head, found by its place (row, column), which is
  // sorted.
  const auto place = [&](const at::Tensor& rows, const at::Tensor& columns) {
    return rows * graph_.nodes + columns;
  };
  const at::Tensor graph_rows =
      at::arange(graph_.nodes, at::kLong).repeat_interleave(graph_.row_offsets.diff());
  const at::Tensor all = place(graph_rows, graph_.col_indices).to(edges.device());
  const at::Tensor wanted = place(edges.edge_rows().remainder(graph_.nodes), edges.col_indices());
  return graph_.types.to(edges.device()).index_select(0, at::searchsorted(all, wanted));
}

int64_t TreeEdges::type_count() const {
  const auto levels = static_cast<int64_t>(graph_.level_sizes.size());
  return (2 * options.step + 1) * (std::min(levels - 1, options.clip) + 1);
}

}  // namespace edgewise
