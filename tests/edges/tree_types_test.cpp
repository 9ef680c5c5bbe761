// The types of the edges of small trees, by hand: (2 step + 1) min(level, clip), plus 0 for the token itself
// and for a span's own tokens, plus 2 s + 1 for the s-th node to the left, 2 s + 2 to the right.
#include <edgewise/edges/special_case_edges.h>

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace edgewise {
namespace {

using TypesByNode = std::map<int64_t, int64_t>;

TypesByNode types_of_row(const TreeGraph& graph, int64_t row) {
  TypesByNode result;
  for (int64_t e = graph.row_offsets[row].item<int64_t>(); e < graph.row_offsets[row + 1].item<int64_t>();
       ++e)
    result[graph.col_indices[e].item<int64_t>()] = graph.types[e].item<int64_t>();
  return result;
}

// Tokens 0 .. 3, spans 4 = {0, 1}, 5 = {2, 3}, 6 = all.
const std::vector<TypesByNode> kFourTokens = {
    {{0, 0}, {1, 2}, {5, 5}},          // then the span to the right, level 1
    {{0, 1}, {1, 0}, {2, 2}, {3, 5}},  // 3 in place of its span, whose half is covered: the span's level
    {{0, 4}, {1, 1}, {2, 0}, {3, 2}},  // the same to the left
    {{2, 1}, {3, 0}, {4, 4}},         {{0, 3}, {1, 3}}, {{2, 3}, {3, 3}}, {{0, 6}, {1, 6}, {2, 6}, {3, 6}},
};

TEST(TreeTypes, OfFourTokens) {
  const TreeGraph graph = tree_graph({.tokens = 4, .step = 1, .is_causal = false, .clip = 6});
  for (int64_t row = 0; row < 7; ++row)
    EXPECT_EQ(types_of_row(graph, row), kFourTokens[static_cast<size_t>(row)]) << row;
}

TEST(TreeTypes, LevelsAreClipped) {
  const TreeGraph once = tree_graph({.tokens = 4, .step = 1, .is_causal = false, .clip = 1}),
                  never = tree_graph({.tokens = 4, .step = 1, .is_causal = false, .clip = 0});
  EXPECT_EQ(types_of_row(once, 6), (TypesByNode{{0, 3}, {1, 3}, {2, 3}, {3, 3}}));
  EXPECT_EQ(types_of_row(once, 0), kFourTokens[0]);
  EXPECT_EQ(types_of_row(never, 0), (TypesByNode{{0, 0}, {1, 2}, {5, 2}}));
  EXPECT_EQ(types_of_row(never, 6), (TypesByNode{{0, 0}, {1, 0}, {2, 0}, {3, 0}}));
}

// Two nodes a level. Token 4 of five: 3 and 2 to the left, then the span {0, 1}, which is node 5. Token 1: 2
// and 3 to the right, then node 7, the span of token 4 alone.
TEST(TreeTypes, OfSeveralNodesALevel) {
  const TreeGraph graph = tree_graph({.tokens = 5, .step = 2, .is_causal = true, .clip = 6});
  EXPECT_EQ(types_of_row(graph, 4), (TypesByNode{{2, 3}, {3, 1}, {4, 0}, {5, 6}}));
  const TreeGraph both = tree_graph({.tokens = 5, .step = 2, .is_causal = false, .clip = 6});
  EXPECT_EQ(types_of_row(both, 1), (TypesByNode{{0, 1}, {1, 0}, {2, 2}, {3, 4}, {7, 7}}));
}

}  // namespace
}  // namespace edgewise
