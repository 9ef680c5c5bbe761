// Patterns of unit 16 against their definition, pair by pair.
#include <edgewise/edges/patterns.h>
#include <edgewise/graph/square_lists.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kit/message_of.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

using ::testing::HasSubstr;

std::vector<EdgeRequest> all_requests() {
  std::vector<EdgeRequest> all;
  for (const int64_t offset : {0, 21})
    for (const bool causal : {false, true})
      for (const bool masked : {false, true}) {
        EdgeRequest ask;
        ask.query = kit::randn({2, 2, 75, 4}, 1);
        ask.key = kit::randn({2, 2, 75 + offset, 4}, 2);
        ask.is_causal = causal;
        ask.query_offset = offset;
        if (masked) {
          at::Tensor mask = kit::rand({2, 75 + offset}, 3) < 0.7;
          mask[1].narrow(0, 32, 20).fill_(false);
          mask[0].narrow(0, 60, 15 + offset).fill_(false);
          ask.key_mask = mask;
        }
        all.push_back(ask);
      }
  return all;
}

at::Tensor group_of(int64_t tokens) {
  return at::arange(tokens).div(16, "floor");
}

TEST(SquarePatterns, FullIsEveryAllowedPair) {
  for (const EdgeRequest& ask : all_requests()) {
    const EdgeSet found = FullEdges(16).choose(ask).edges;
    EXPECT_TRUE(found.squares());
    EXPECT_TRUE(at::equal(found.to_mask(), ask.allowed().expand({2, 2, 75, ask.key.size(2)})));
  }
}

TEST(SquarePatterns, WindowIsEverySquareItTouches) {
  for (const int64_t width : {0, 1, 16, 20, 200})
    for (const EdgeRequest& ask : all_requests()) {
      const int64_t keys = ask.key.size(2), groups = graph::groups_of(keys);
      const EdgeSet found = WindowEdges(width, 16).choose(ask).edges;
      ASSERT_TRUE(found.squares());
      // A key group is there for a query group where some query of it has some key of it in its window.
      const at::Tensor query = at::arange(75).unsqueeze(1) + ask.query_offset, key = at::arange(keys);
      const int64_t ahead = ask.is_causal ? 0 : width;
      const at::Tensor window = (key >= query - width) & (key <= query + ahead);
      const at::Tensor touched = at::constant_pad_nd(window, {0, groups * 16 - keys, 0, 80 - 75})
                                     .view({5, 16, groups, 16})
                                     .amax({1, 3});
      const at::Tensor expected = touched.index_select(0, group_of(75)).index_select(1, group_of(keys)) &
                                  ask.allowed().expand({2, 2, 75, keys});
      EXPECT_TRUE(at::equal(found.to_mask(), expected)) << width << " " << ask.query_offset << ask.is_causal;
    }
}

TEST(SquarePatterns, WindowIsRememberedForTheSameRequestAlone) {
  WindowEdges window(20, 16);
  const std::vector<EdgeRequest> all = all_requests();
  const EdgeSet first = window.choose(all[0]).edges;
  EXPECT_EQ(window.choose(all[0]).edges.squares(), first.squares());
  EXPECT_FALSE(at::equal(window.choose(all[2]).edges.to_mask(), first.to_mask()));
}

TEST(SquarePatterns, RandomDrawsSoManyKeyGroupsUniformly) {
  for (const EdgeRequest& ask : all_requests()) {
    const EdgeSet found = RandomEdges(2, 16).choose(ask).edges;
    ASSERT_TRUE(found.squares());
    EXPECT_FALSE((found.to_mask() & ~ask.allowed()).any().item<bool>());
    const at::Tensor groups = found.square_groups().degrees();
    EXPECT_LE(groups.max().item<int64_t>(), 2);
    if (!ask.key_mask && !ask.is_causal) {
      EXPECT_EQ(groups.min().item<int64_t>(), 2);
    }
    EXPECT_TRUE(at::equal(found.to_mask(), RandomEdges(2, 16).choose(ask).edges.to_mask()));
  }
  EdgeRequest many;
  many.query = many.key = kit::randn({400, 2, 80, 4}, 1);
  const at::Tensor drawn = RandomEdges(2, 16).choose(many).edges.square_groups().to_mask().to(at::kDouble);
  // 800 draws for a pair of groups: 0.4 within 5 standard errors of 0.0173.
  EXPECT_LT((drawn.mean(at::IntArrayRef{0, 1}) - 0.4).abs().max().item<double>(), 0.087);
}

TEST(SquarePatterns, GivenSquaresStaySquares) {
  for (const EdgeRequest& ask : all_requests()) {
    const EdgeShape shape = ask.shape();
    const EdgeSet groups =
        EdgeSet::from_mask(kit::rand({2, 2, 5, graph::groups_of(shape.keys)}, 5, at::kDouble) < 0.5);
    const EdgeSet given = EdgeSet::from_square_groups(shape, groups, {});
    const EdgeSet found = GivenEdges(given).choose(ask).edges;
    EXPECT_TRUE(found.squares());
    EXPECT_TRUE(at::equal(found.to_mask(), given.to_mask() & ask.allowed()));
  }
}

TEST(SquarePatterns, UnionsOfSquaresAreSquaresAndOthersLists) {
  for (const EdgeRequest& ask : all_requests()) {
    const auto window = std::make_shared<WindowEdges>(3, 16);
    const auto random = std::make_shared<RandomEdges>(2, 16);
    const auto single = std::make_shared<WindowEdges>(40);
    const EdgeSet both = UnionEdges({window, random}).choose(ask).edges;
    EXPECT_TRUE(both.squares());
    EXPECT_TRUE(
        at::equal(both.to_mask(), window->choose(ask).edges.to_mask() | random->choose(ask).edges.to_mask()));
    const EdgeSet mixed = UnionEdges({window, single}).choose(ask).edges;
    EXPECT_FALSE(mixed.squares());
    EXPECT_TRUE(at::equal(mixed.to_mask(),
                          window->choose(ask).edges.to_mask() | single->choose(ask).edges.to_mask()));
  }
}

TEST(SquarePatterns, RefusalsSayWhatToDo) {
  for (const std::string& message :
       {kit::message_of([] { FullEdges(2); }), kit::message_of([] { WindowEdges(3, 4); }),
        kit::message_of([] { RandomEdges(3, 0); })})
    EXPECT_THAT(message, HasSubstr("the unit 1 (edges one by one) or 16"));
  EXPECT_EQ(RandomEdges(3).growth_refusal(), "");
  EXPECT_THAT(RandomEdges(3, 16).growth_refusal(), HasSubstr("attention.unit = 1"));
}

}  // namespace
}  // namespace edgewise
