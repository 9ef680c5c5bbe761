// Tokens of a picture: where they stand, and windows over rows and columns.
#include <edgewise/edges/grid_edges.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "attention/grid_positions.h"
#include "kit/message_of.h"

namespace edgewise {
namespace {

EdgeRequest request_of(const PixelGrid& grid, int64_t batch = 2, int64_t heads = 3) {
  const at::Tensor x = torch::randn({batch, heads, grid.tokens(), 4});
  return {x, x, std::nullopt, false, RandomStream{}};
}

// Pair by pair.
at::Tensor near_pairs(const PixelGrid& grid, int64_t radius) {
  const at::Tensor places = grid_places(grid);
  at::Tensor mask = torch::zeros({grid.tokens(), grid.tokens()}, torch::kBool);
  for (int64_t i = 0; i < grid.tokens(); ++i)
    for (int64_t j = 0; j < grid.tokens(); ++j)
      mask[i][j] = std::abs(places[i][0].item<int64_t>() - places[j][0].item<int64_t>()) <= radius &&
                   std::abs(places[i][1].item<int64_t>() - places[j][1].item<int64_t>()) <= radius;
  return mask;
}

TEST(GridPlaces, GoRowByRowOrPatchByPatch) {
  const at::Tensor rows = grid_places({2, 3, 1});
  EXPECT_TRUE(
      torch::equal(rows, torch::tensor({{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}}, torch::kLong)));
  const at::Tensor patches = grid_places({4, 4, 2});
  EXPECT_TRUE(
      torch::equal(patches.narrow(0, 4, 4), torch::tensor({{0, 2}, {0, 3}, {1, 2}, {1, 3}}, torch::kLong)));
  EXPECT_TRUE(torch::equal(patches.narrow(0, 8, 2), torch::tensor({{2, 0}, {2, 1}}, torch::kLong)));
}

TEST(GridPlaces, AreTheOrderThatPixelsAreBroughtInto) {
  const PixelGrid grid{8, 12, 4};
  const at::Tensor numbers = torch::arange(grid.tokens()).view({1, 1, 8, 12, 1});
  const at::Tensor tokens = as_tokens(numbers, grid), places = grid_places(grid);
  EXPECT_TRUE(torch::equal(tokens.flatten(), places.select(1, 0) * 12 + places.select(1, 1)));
  EXPECT_TRUE(torch::equal(as_pixels(tokens, grid), numbers));
}

TEST(GridWindow, HasThePairsWithinItsRadius) {
  for (const PixelGrid grid : {PixelGrid{4, 6, 1}, PixelGrid{4, 6, 2}})
    for (const int64_t radius : {0, 1, 2, 10}) {
      GridWindowEdges source(grid, radius);
      for (int repeat = 0; repeat < 2; ++repeat) {  // the second from what it kept
        const at::Tensor mask = source.choose(request_of(grid)).edges.to_mask();
        EXPECT_TRUE(torch::equal(mask, near_pairs(grid, radius).expand_as(mask))) << radius;
      }
      EXPECT_EQ(source.choose(request_of(grid, 1, 1)).edges.shape().batch, 1);
    }
}

TEST(GridWindow, InSquaresHasWhatItTouches) {
  const PixelGrid grid{8, 12, 4};
  const EdgeSet edges = GridWindowEdges(grid, 1, 16).choose(request_of(grid)).edges;
  ASSERT_NE(edges.squares(), nullptr);
  const at::Tensor touched = near_pairs(grid, 1).view({6, 16, 6, 16}).any(3).any(1);
  const at::Tensor wanted = touched.repeat_interleave(16, 0).repeat_interleave(16, 1);
  const at::Tensor mask = edges.to_mask();
  EXPECT_TRUE(torch::equal(mask, wanted.expand_as(mask)));
  EXPECT_FALSE(wanted.all().item<bool>()) << "the first patch does not touch the last column";
}

TEST(GridWindow, MistakesAreExplained) {
  EXPECT_NE(kit::message_of([] {
              GridWindowEdges({7, 7, 4}, 1, 16);
            }).find("whole patches of 4 x 4"),
            std::string::npos);
  EXPECT_NE(kit::message_of([] {
              GridWindowEdges({8, 8, 1}, 1, 16);
            }).find("patches of 4 x 4 pixels for squares"),
            std::string::npos);
  EXPECT_NE(kit::message_of([] {
              GridWindowEdges({8, 8, 1}, -1);
            }).find("radius of 0 or more"),
            std::string::npos);
  GridWindowEdges source({4, 4, 1}, 1);
  EXPECT_NE(kit::message_of([&] {
              source.choose(request_of({4, 5, 1}));
            }).find("the 16 pixels"),
            std::string::npos);
}

}  // namespace
}  // namespace edgewise
