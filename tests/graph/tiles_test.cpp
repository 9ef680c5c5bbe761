// Bit tiles against CSR and the dense mask, on CPU and, where there is one, on the GPU.
#include <edgewise/graph/edge_set.h>

#include <gtest/gtest.h>

#include "graph/edge_plan.h"
#include "graph/tiles/tiles.h"
#include "kernels/bit_tiles.h"
#include "kit/devices.h"
#include "kit/random_inputs.h"

namespace edgewise {
namespace {

const std::vector<EdgeShape> kShapes = {
    {2, 3, 200, 130}, {1, 1, 64, 64}, {1, 2, 1, 300}, {1, 1, 65, 1}, {2, 1, 0, 5}};

class Tiles : public kit::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(All, Tiles, kit::devices(), kit::device_name);

TEST_P(Tiles, ComeFromCsrAndGoBack) {
  for (const EdgeShape& shape : kShapes)
    for (const double density : {0.0, 0.1, 1.0}) {
      const at::Tensor mask = kit::random_mask(shape, density, 1).to(device());
      const EdgeSet edges = EdgeSet::from_mask(mask);
      const EdgeSet again = EdgeSet::from_trusted_tiles(shape, edges.tiles());
      EXPECT_FALSE(again.has_csr());
      EXPECT_TRUE(at::equal(again.row_offsets(), edges.row_offsets())) << to_string(shape) << density;
      EXPECT_TRUE(at::equal(again.col_indices(), edges.col_indices())) << to_string(shape) << density;
      EXPECT_TRUE(at::equal(again.edges_per_head(), edges.edges_per_head()));
      EXPECT_TRUE(at::equal(again.to_mask(), mask));
    }
}

TEST_P(Tiles, TransposeAsTheMaskDoes) {
  for (const EdgeShape& shape : kShapes) {
    const at::Tensor mask = kit::random_mask(shape, 0.3, 2).to(device());
    const EdgeSet edges = EdgeSet::from_mask(mask),
                  turned = EdgeSet::from_mask(mask.transpose(2, 3).contiguous());
    EXPECT_TRUE(at::equal(graph::EdgePlan::of(edges).transposed_tiles(), turned.tiles())) << to_string(shape);
  }
}

TEST_P(Tiles, SetOperationsStayTiles) {
  for (const EdgeShape& shape : kShapes) {
    const at::Tensor one = kit::random_mask(shape, 0.3, 3).to(device()),
                     two = kit::random_mask(shape, 0.4, 4).to(device());
    const auto tiles_only = [&](const at::Tensor& mask) {
      return EdgeSet::from_trusted_tiles(shape, EdgeSet::from_mask(mask).tiles());
    };
    const EdgeSet a = tiles_only(one), b = tiles_only(two), given = EdgeSet::from_mask(two);
    for (const EdgeSet& other : {b, given}) {
      const EdgeSet united = a.united_with(other), left = a.minus(other);
      EXPECT_TRUE(at::equal(left.degrees(), (one & ~two).sum(3))) << to_string(shape);
      EXPECT_TRUE(at::equal(united.edges_per_head(), (one | two).sum({2, 3}))) << to_string(shape);
      EXPECT_FALSE(united.has_csr() || left.has_csr());
      EXPECT_TRUE(at::equal(united.to_mask(), one | two)) << to_string(shape);
      EXPECT_TRUE(at::equal(left.to_mask(), one & ~two)) << to_string(shape);
    }
    EXPECT_TRUE(at::equal(given.united_with(a).to_mask(), one | two)) << to_string(shape);
    EXPECT_FALSE(a.has_csr() || b.has_csr());
  }
}

TEST(TileLayout, GivesEveryPairABitOfItsOwn) {
  std::set<std::pair<int, int>> places;
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < 64; ++column) {
      const int word = kernels::tile_word(row, column), bit = kernels::tile_bit(row, column);
      EXPECT_TRUE(word >= 0 && word < kernels::kTileWords && bit >= 0 && bit < 32);
      places.insert({word, bit});
    }
  EXPECT_EQ(places.size(), 64u * 64u);
}

}  // namespace
}  // namespace edgewise
