// The graphs of the special cases: golden edge counts, and that a tree covers everything exactly once.
#include <edgewise/edges/special_case_edges.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace edgewise {
namespace {

struct Golden {
  int64_t tokens, step;
  bool causal;
  int64_t nodes, levels, edges, affiliated;
};

TEST(TreeGraph, GoldenCounts) {
  for (const Golden& g :
       {Golden{8, 1, false, 15, 4, 66, 32}, Golden{8, 1, true, 15, 4, 49, 32},
        Golden{16, 1, false, 31, 5, 178, 80}, Golden{16, 2, true, 31, 5, 148, 80},
        Golden{64, 4, true, 127, 7, 1193, 448}, Golden{64, 4, false, 127, 7, 1938, 448},
        Golden{13, 1, true, 27, 5, 102, 65}, Golden{512, 1, true, 1023, 10, 9217, 5120},
        Golden{512, 64, true, 1023, 10, 73016, 5120}, Golden{8192, 4, false, 16383, 14, 745786, 114688},
        Golden{8192, 64, true, 16383, 14, 3036767, 114688}}) {
    const TreeGraph graph =
        tree_graph({.tokens = g.tokens, .step = g.step, .is_causal = g.causal, .clip = 100});
    EXPECT_EQ(graph.nodes, g.nodes);
    EXPECT_EQ(static_cast<int64_t>(graph.level_sizes.size()), g.levels);
    EXPECT_EQ(graph.edge_count(), g.edges) << g.tokens << " " << g.step;
    EXPECT_EQ((graph.types.remainder(2 * g.step + 1) == 0).sum().item<int64_t>(), g.affiliated);
  }
}

// The tokens below each node, as a matrix.
at::Tensor coverage(const TreeGraph& graph, int64_t tokens) {
  at::Tensor result = at::zeros({graph.nodes, tokens}, at::kInt);
  int64_t node = 0;
  for (size_t level = 0; level < graph.level_sizes.size(); ++level)
    for (int64_t q = 0; q < graph.level_sizes[level]; ++q, ++node) {
      const int64_t begin = q << level, end = std::min((q + 1) << level, tokens);
      result[node].slice(0, begin, end).fill_(1);
    }
  return result;
}

TEST(TreeGraph, EveryTokenIsCoveredExactlyOnce) {
  for (const int64_t step : {1, 2, 4}) {
    for (int64_t tokens = 1; tokens <= 300; ++tokens) {
      for (const bool causal : {false, true}) {
        const TreeGraph graph = tree_graph({.tokens = tokens, .step = step, .is_causal = causal, .clip = 6});
        const at::Tensor covers = coverage(graph, tokens);
        const int64_t edges = graph.row_offsets[tokens].item<int64_t>();  // those of tokens
        const at::Tensor rows =
            at::arange(tokens).repeat_interleave(graph.row_offsets.slice(0, 0, tokens + 1).diff());
        const at::Tensor seen =
            at::zeros({tokens, tokens}, at::kInt)
                .index_add(0, rows, covers.index_select(0, graph.col_indices.slice(0, 0, edges)));
        const at::Tensor wanted = at::ones({tokens, tokens}, at::kInt);
        ASSERT_TRUE(at::equal(seen, causal ? wanted.tril() : wanted)) << tokens << " tokens, step " << step;
        // A span node uses exactly the tokens below it.
        const EdgeSet checked =
            EdgeSet::from_csr({1, 1, graph.nodes, graph.nodes}, graph.row_offsets, graph.col_indices);
        ASSERT_TRUE(at::equal(checked.degrees()[0][0].slice(0, tokens), covers.sum(1).slice(0, tokens)));
      }
    }
  }
}

TEST(TreeEdges, MaskOfNodesAndTypesOfKeptEdges) {
  TreeEdges tree({.tokens = 5, .step = 1, .is_causal = false, .clip = 6});
  // 5 tokens, then 3, 2 and 1 spans.
  const at::Tensor mask = tree.node_mask(torch::tensor({true, true, true, false, false}).unsqueeze(0));
  EXPECT_TRUE(at::equal(
      mask[0], torch::tensor({true, true, true, false, false, true, true, false, true, false, true})));
  EdgeRequest request;
  request.query = request.key = at::zeros({1, 2, 11, 1});
  const EdgeSet all = tree.choose(request).edges;
  EXPECT_TRUE(at::equal(tree.types(all), tree.graph().types.repeat({2})));
  request.key_mask = mask;
  const EdgeSet kept = tree.choose(request).edges;
  EXPECT_TRUE(at::equal(tree.types(kept), tree.types(all).masked_select(all.contained_in(kept))));
  EXPECT_LT(kept.edge_count(), all.edge_count());
}

TEST(SegmentEdges, RangesOfAWholeSequence) {
  EdgeRequest request;
  request.query = request.key = at::zeros({1, 1, 10, 1});
  request.is_causal = true;
  const at::Tensor mask = SegmentEdges({.segment = 4, .memory = 3}).choose(request).edges.to_mask()[0][0];
  for (int64_t i = 0; i < 10; ++i)
    for (int64_t j = 0; j < 10; ++j)
      EXPECT_EQ(mask[i][j].item<bool>(), j <= i && j >= i / 4 * 4 - 3) << i << " " << j;
  EXPECT_THROW(SegmentEdges({.segment = 0}), c10::ValueError);
}

}  // namespace
}  // namespace edgewise
