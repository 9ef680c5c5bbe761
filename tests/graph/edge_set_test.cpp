// EdgeSet against dense masks: conversions, set operations, statistics, files, and everything it must refuse.
#include <edgewise/graph/edge_set.h>
#include <edgewise/io/safetensors.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/edge_plan.h"
#include "kit/random_inputs.h"
#include "kit/scratch_folder.h"

namespace edgewise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const EdgeShape kShape{2, 3, 7, 5};  // L != S catches swapped roles

EdgeSet random_edges(double density, int64_t seed, const EdgeShape& shape = kShape) {
  return EdgeSet::from_mask(kit::random_mask(shape, density, seed));
}

template <typename Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

at::Tensor int64s(std::vector<int64_t> values) {
  return torch::tensor(values, at::kLong);
}
at::Tensor int32s(std::vector<int32_t> values) {
  return torch::tensor(values, at::kInt);
}

TEST(EdgeSet, MaskRoundTripAndCsr) {
  for (const double density : {0.0, 0.3, 1.0}) {
    const at::Tensor mask = kit::random_mask(kShape, density, 1);
    const EdgeSet edges = EdgeSet::from_mask(mask);
    // A new set from the CSR alone, so that the mask kept by from_mask is not what is compared.
    const EdgeSet again = EdgeSet::from_csr(kShape, edges.row_offsets(), edges.col_indices());
    EXPECT_TRUE(at::equal(again.to_mask(), mask));
    EXPECT_EQ(again.edge_count(), mask.sum().item<int64_t>());
  }
}

TEST(EdgeSet, TransposedListsEveryEdgeByKey) {
  const EdgeSet edges = random_edges(0.4, 2);
  const graph::TransposedEdges& transposed = graph::EdgePlan::of(edges).transposed();
  const at::Tensor mask = edges.to_mask();
  at::Tensor rebuilt = at::zeros({2 * 3, 5, 7}, at::kBool);
  const auto offsets = transposed.column_offsets.accessor<int64_t, 1>();
  for (int64_t column = 0; column < kShape.columns(); ++column)
    for (int64_t n = offsets[column]; n < offsets[column + 1]; ++n) {
      rebuilt[column / 5][column % 5][transposed.row_indices[n].item<int64_t>()] = true;
      EXPECT_EQ(edges.col_indices()[transposed.edge_ids[n].item<int64_t>()].item<int64_t>(), column % 5);
    }
  EXPECT_TRUE(at::equal(rebuilt.transpose(1, 2).reshape({2, 3, 7, 5}), mask));
}

TEST(EdgePlan, IsMadeOnceAndKeptWithTheSet) {
  const EdgeSet edges = random_edges(0.4, 2), copy = edges, others = random_edges(0.4, 2);
  graph::EdgePlan& plan = graph::EdgePlan::of(edges);
  const at::Tensor rows = plan.transposed().row_indices, tiles = plan.transposed_tiles();
  EXPECT_TRUE(graph::EdgePlan::of(copy).transposed().row_indices.is_same(rows));
  EXPECT_TRUE(graph::EdgePlan::of(copy).transposed_tiles().is_same(tiles));
  EXPECT_FALSE(graph::EdgePlan::of(others).transposed().row_indices.is_same(rows));
  EXPECT_EQ(plan.units(), nullptr);
  EXPECT_THROW(plan.unit_tiles(), c10::Error);
}

TEST(EdgeSet, SetOperationsAgreeWithMasks) {
  const EdgeSet a = random_edges(0.3, 3), b = random_edges(0.5, 4);
  const at::Tensor mask_a = a.to_mask(), mask_b = b.to_mask();
  EXPECT_TRUE(at::equal(a.united_with(b).to_mask(), mask_a | mask_b));
  EXPECT_TRUE(at::equal(a.minus(b).to_mask(), mask_a & ~mask_b));
  EXPECT_EQ(a.contained_in(b).sum().item<int64_t>(), (mask_a & mask_b).sum().item<int64_t>());
  EXPECT_TRUE(at::equal(a.united_with(EdgeSet::none(kShape)).to_mask(), mask_a));
  EXPECT_TRUE(at::equal(a.minus(EdgeSet::full(kShape)).to_mask(), at::zeros_like(mask_a)));
  const at::Tensor lower = at::ones({7, 5}).tril().to(at::kBool);
  EXPECT_TRUE(at::equal(a.causal().to_mask(), mask_a & lower));
  const at::Tensor keys = kit::rand({2, 5}, 5) < 0.5, queries = kit::rand({2, 7}, 6) < 0.5;
  EXPECT_TRUE(at::equal(a.restricted_to_keys(keys).to_mask(), mask_a & keys.view({2, 1, 1, 5})));
  EXPECT_TRUE(at::equal(a.restricted_to_queries(queries).to_mask(), mask_a & queries.view({2, 1, 7, 1})));
}

TEST(EdgeSet, Statistics) {
  const EdgeSet edges = random_edges(0.4, 7);
  const at::Tensor mask = edges.to_mask();
  EXPECT_TRUE(at::equal(edges.degrees(), mask.sum(3)));
  EXPECT_TRUE(at::equal(edges.edges_per_head(), mask.sum({2, 3})));
  EXPECT_TRUE(at::allclose(edges.density(), mask.sum({0, 2, 3}).to(at::kDouble) / (2.0 * 7 * 5)));
  // Padding is never counted: item 0 has 3 of 5 keys, item 1 all.
  const at::Tensor keys = torch::tensor({{1, 1, 1, 0, 0}, {1, 1, 1, 1, 1}}).to(at::kBool);
  const EdgeSet valid = edges.restricted_to_keys(keys);
  EXPECT_EQ(valid_pairs(kShape, keys, std::nullopt), 7 * 3 + 7 * 5);
  EXPECT_TRUE(at::allclose(valid.density(keys), valid.to_mask().sum({0, 2, 3}).to(at::kDouble) / (7.0 * 8)));
  EXPECT_TRUE(
      at::equal(EdgeSet::none({1, 1, 0, 0}).density(), at::zeros({1}, at::kDouble)));  // no pairs at all
}

TEST(EdgeSet, RefusesBadCsr) {
  const EdgeShape shape{1, 1, 2, 4};
  const auto build = [&](const at::Tensor& offsets, const at::Tensor& columns) {
    return message_of([&] { EdgeSet::from_csr(shape, offsets, columns); });
  };
  EXPECT_EQ(build(int64s({0, 2, 3}), int32s({0, 3, 1})), "no error");
  EXPECT_THAT(build(int64s({0, 2}), int32s({0, 3})), HasSubstr("row_offsets [B*H*L + 1] = [3]"));
  EXPECT_THAT(build(int64s({1, 2, 3}), int32s({0, 3, 1})), HasSubstr("row_offsets[0] = 0"));
  EXPECT_THAT(build(int64s({0, 2, 4}), int32s({0, 3, 1})), HasSubstr("row_offsets[-1]"));
  EXPECT_THAT(build(int64s({0, 1, 2}), int32s({0, 3, 1})),
              HasSubstr("row_offsets[-1]"));  // a column too many
  EXPECT_THAT(build(int64s({0, 4, 3}), int32s({0, 3, 1})), HasSubstr("never fall"));
  EXPECT_THAT(build(int64s({0, 2, 3}), int32s({0, 4, 1})), HasSubstr("columns in [0, 4)"));
  EXPECT_THAT(build(int64s({0, 2, 3}), int32s({-1, 3, 1})), HasSubstr("columns in [0, 4)"));
  EXPECT_THAT(build(int64s({0, 2, 3}), int32s({3, 0, 1})), HasSubstr("sorted"));
  EXPECT_THAT(build(int64s({0, 2, 3}), int32s({3, 3, 1})), HasSubstr("without repeats"));
  EXPECT_THAT(build(int32s({0, 2, 3}), int32s({0, 3, 1})), HasSubstr("row_offsets of dtype int64"));
  EXPECT_THAT(build(int64s({0, 2, 3}), int64s({0, 3, 1})), HasSubstr("col_indices of dtype int32"));
  // Refused before it is copied: 64 GiB.
  EXPECT_THAT(build(int64s({0, 2, 3}), int32s({0}).expand({int64_t{1} << 34})),
              HasSubstr("at most 8 columns"));
  // Sizes whose product overflows must not wrap into something that fits.
  EXPECT_THAT(
      message_of([&] {
        EdgeSet::from_csr({int64_t{1} << 32, int64_t{1} << 20, int64_t{1} << 20, 1}, int64s({0}), int32s({}));
      }),
      HasSubstr("does not fit 63 bits"));
  EXPECT_THAT(message_of([&] {
                EdgeSet::from_csr({-1, 1, 1, 1}, int64s({0}), int32s({}));
              }),
              HasSubstr("not negative"));
  EXPECT_THAT(message_of([&] {
                EdgeSet::from_csr({1, 1, 1, int64_t{1} << 33}, int64s({0, 0}), int32s({}));
              }),
              HasSubstr("2^31 - 1"));
  EXPECT_THAT(message_of([&] {
                EdgeSet::from_mask(at::ones({2, 2}));
              }),
              HasSubstr("boolean mask [B, H, L, S]"));
  EXPECT_THAT(message_of([&] { random_edges(0.5, 1).united_with(EdgeSet::none(shape)); }),
              HasSubstr("edges of shape [B=2, H=3, L=7, S=5]"));
}

class EdgeSetFile : public ::testing::Test {
 protected:
  kit::ScratchFolder folder_;
  std::string path_ = folder_.file("edges.safetensors");
};

TEST_F(EdgeSetFile, RoundTrip) {
  const EdgeSet edges = random_edges(0.4, 8);
  edges.save(path_);
  const EdgeSet again = EdgeSet::load(path_);
  EXPECT_EQ(again.shape(), edges.shape());
  EXPECT_TRUE(at::equal(again.to_mask(), edges.to_mask()));
}

// A checkpoint or another program's CSR is not taken for edges, nor is a layout that this version does not
// know.
TEST_F(EdgeSetFile, RefusesAnotherFormat) {
  random_edges(0.4, 8).save(path_);
  io::TensorFile file = io::load_safetensors(path_);
  const auto load_as = [&](std::map<std::string, std::string> metadata) {
    file.metadata = std::move(metadata);
    io::save_safetensors(path_, file);
    return message_of([&] { EdgeSet::load(path_); });
  };
  EXPECT_THAT(load_as({}), AllOf(HasSubstr("a file of edges"), HasSubstr(path_ + "; found no format")));
  EXPECT_THAT(load_as({{"format", "edgewise-checkpoint"}}), HasSubstr("found format 'edgewise-checkpoint'"));
  EXPECT_THAT(load_as({{"format", "edgewise.edge_set.2"}}),
              HasSubstr("written by another version of edgewise"));
}

TEST_F(EdgeSetFile, RefusesHostileContent) {
  io::TensorFile file;
  file.metadata["format"] = "edgewise.edge_set.1";
  file.tensors["row_offsets"] = int64s({0, 1});
  file.tensors["col_indices"] = int32s({0});
  io::save_safetensors(path_, file);
  EXPECT_THAT(message_of([&] { EdgeSet::load(path_); }), HasSubstr("has no tensor 'shape'"));
  file.tensors["shape"] = int64s({1, 1, 1, 1, 1});
  io::save_safetensors(path_, file);
  EXPECT_THAT(message_of([&] { EdgeSet::load(path_); }), HasSubstr("shape [4] int64"));
  file.tensors["shape"] = int64s({1, 1, 1, 1});
  file.tensors["col_indices"] = int32s({7});  // out of range
  io::save_safetensors(path_, file);
  EXPECT_THAT(message_of([&] { EdgeSet::load(path_); }),
              AllOf(HasSubstr(path_), HasSubstr("columns in [0, 1)")));
}

}  // namespace
}  // namespace edgewise
