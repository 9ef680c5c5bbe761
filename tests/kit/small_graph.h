// A graph of seven nodes in two parts, 0-1-2-3 with a triangle and 4-5, node 6 alone, with sparse features.
#pragma once

#include <ATen/ATen.h>
#include <edgewise/data/graphs/graph_data.h>
#include <edgewise/models/input_graph.h>

#include <memory>

namespace edgewise::kit {

inline at::Tensor small_edges() {  // undirected, once each
  return at::tensor({0, 1, 0, 2, 1, 2, 2, 3, 4, 5}, at::kInt).view({5, 2});
}
// [7, 4]; node 6 has none.
inline at::Tensor small_features() {
  return at::tensor({1., 0., 2., 0., 0., 1., 2., 0., 0., 1., 0., 1., 3., 0.,
                     0., 0., 0., 0., 1., 1., 0., 0., 2., 3., 0., 0., 0., 0.},
                    at::kFloat)
      .view({7, 4});
}

inline data::GraphData small_graph() {
  data::GraphData graph;
  graph.name = "small";
  graph.nodes = 7, graph.features = 4, graph.classes = 3;
  const at::Tensor features = small_features(), present = features != 0;
  graph.feature_offsets = at::cat({at::zeros({1}, at::kLong), present.sum(1).cumsum(0)});
  graph.feature_columns = present.nonzero().select(1, 1).to(at::kInt).contiguous();
  graph.feature_values = features.masked_select(present);
  graph.edges = small_edges();
  graph.labels = at::tensor({0, 1, 1, 2, 0, 2, -1}, at::kInt);
  const auto mask = [](std::vector<int> first, std::vector<int> second) {
    return at::stack({at::tensor(first, at::kInt), at::tensor(second, at::kInt)}).to(at::kBool);
  };
  graph.train_mask = mask({1, 1, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 0, 0});
  graph.validation_mask = mask({0, 0, 1, 0, 1, 0, 0}, {1, 0, 0, 0, 0, 0, 0});
  graph.test_mask = mask({0, 0, 0, 1, 0, 1, 0}, {0, 1, 1, 0, 0, 0, 0});
  graph.graph_offsets = at::tensor({0, 7}, at::kLong);
  data::check_graph(graph, "small_graph");
  return graph;
}

inline std::shared_ptr<const InputGraph> small_input() {
  const data::GraphData graph = small_graph();
  return std::make_shared<InputGraph>(SparseMatrix::from_csr(graph.features, graph.feature_offsets,
                                                             graph.feature_columns, graph.feature_values),
                                      at::cat({small_edges(), small_edges().flip({1})}));
}

}  // namespace edgewise::kit
