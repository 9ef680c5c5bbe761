// An EdgeSet that was born as squares against the same edges born otherwise.
#include <edgewise/graph/edge_set.h>
#include <edgewise/io/safetensors.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/edge_plan.h"
#include "graph/squares/squares.h"
#include "kit/devices.h"
#include "kit/message_of.h"
#include "kit/other_bytes.h"
#include "kit/scratch_folder.h"
#include "kit/square_cases.h"

namespace edgewise::graph {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const EdgeShape kTokenShape{2, 3, 75, 53};  // 5 query groups, 4 key groups

at::Tensor mask_of_groups(double density, int64_t seed) {
  return kit::rand({2, 3, 5, 4}, seed, at::kDouble) < density;
}
at::Tensor queries_that_count() {
  at::Tensor mask = kit::rand({2, 75}, 77) < 0.8;
  mask[1].narrow(0, 16, 16).fill_(false);  // a whole group
  return mask;
}

class SquareEdgesOn : public kit::DeviceTest {
 protected:
  Squares squares(double density, int64_t seed, bool gaps = false) const {
    const Squares made = squares_from_mask(kTokenShape, mask_of_groups(density, seed));
    return kit::to_device(gaps ? kit::with_gaps(made) : made, device());
  }
  std::vector<SquarePairs> pairs() const {
    const at::Tensor bits = key_bits_of(kit::padded_keys(2, 53)).to(device()),
                     queries = queries_that_count().to(device());
    return {{},
            {.is_causal = true},
            {.key_bits = bits, .is_causal = true, .query_offset = 5},
            {.query_mask = queries},
            {.key_bits = bits, .is_causal = true, .query_offset = -20, .query_mask = queries}};
  }
};

TEST_P(SquareEdgesOn, EverythingIsThatOfTheSameEdgesInLists) {
  for (const SquarePairs& which : pairs())
    for (const double density : {0.0, 0.5, 1.0})
      for (const bool gaps : {false, true}) {
        const EdgeSet found = EdgeSet::from_squares(squares(density, 1, gaps), which);
        const EdgeSet expected = EdgeSet::from_mask(pair_mask(squares(density, 1), which));
        ASSERT_TRUE(found.squares());
        EXPECT_EQ(found.shape(), kTokenShape);
        EXPECT_EQ(found.edge_count(), expected.edge_count());
        EXPECT_TRUE(at::equal(found.edges_per_head(), expected.edges_per_head()));
        EXPECT_TRUE(at::equal(found.degrees(), expected.degrees()));
        EXPECT_TRUE(at::equal(found.density(), expected.density()));
        EXPECT_TRUE(at::equal(found.to_mask(), expected.to_mask()));
        EXPECT_FALSE(found.has_csr()) << "made for none of these";
        EXPECT_TRUE(at::equal(found.square_groups().to_mask().cpu(), mask_of_groups(density, 1)));
        EXPECT_TRUE(at::equal(found.tiles(), expected.tiles()));
        EXPECT_TRUE(at::equal(found.row_offsets(), expected.row_offsets()));
        EXPECT_TRUE(at::equal(found.col_indices(), expected.col_indices()));
        EXPECT_TRUE(at::equal(found.edge_rows(), expected.edge_rows()));
        EXPECT_TRUE(at::equal(graph::EdgePlan::of(found).transposed().column_offsets,
                              graph::EdgePlan::of(expected).transposed().column_offsets));
        EXPECT_TRUE(at::equal(found.degrees(), expected.degrees())) << "from the lists";
        EXPECT_TRUE(at::equal(found.to(at::kCPU).to_mask(), expected.to_mask().cpu()));
      }
}

TEST_P(SquareEdgesOn, CountsPerSquareAddUp) {
  for (const SquarePairs& which : pairs()) {
    const Squares given = squares(0.6, 2, true);
    const at::Tensor mask = at::constant_pad_nd(pair_mask(given, which), {0, 64 - 53, 0, 80 - 75});
    const at::Tensor expected =
        mask.view({2, 3, 5, 16, 4, 16}).sum({3, 5}).masked_select(mask_of_squares(given));
    EXPECT_TRUE(at::equal(pairs_per_square(given, which), expected));
  }
}

TEST_P(SquareEdgesOn, UnionsAndDifferencesOfTheSamePairsStaySquares) {
  for (const SquarePairs& which : pairs()) {
    const EdgeSet a = EdgeSet::from_squares(squares(0.5, 3, true), which);
    SquarePairs copy = which;  // equal, but another tensor
    if (copy.key_bits.defined()) copy.key_bits = copy.key_bits.clone();
    const EdgeSet b = EdgeSet::from_squares(squares(0.4, 4), copy);
    const at::Tensor in_a = a.to_mask(), in_b = b.to_mask();
    for (const auto& [found, expected] : {std::pair(a.united_with(b), in_a.logical_or(in_b)),
                                          {a.minus(b), in_a.logical_and(in_b.logical_not())}}) {
      EXPECT_TRUE(found.squares());
      EXPECT_TRUE(at::equal(found.to_mask(), expected));
    }
    EXPECT_TRUE(at::equal(a.contained_in(b), in_b.masked_select(in_a)));
  }
}

TEST_P(SquareEdgesOn, WithOtherPairsOrSingleEdgesTheyBecomeLists) {
  const EdgeSet a = EdgeSet::from_squares(squares(0.5, 3), {});
  const EdgeSet causal = EdgeSet::from_squares(squares(0.4, 4), {.is_causal = true});
  const EdgeSet single = EdgeSet::from_mask(kit::random_mask({2, 3, 75, 53}, 0.1, 5).to(device()));
  const EdgeSet tiles =
      EdgeSet::from_trusted_tiles(kTokenShape, EdgeSet::from_mask(single.to_mask()).tiles());
  for (const EdgeSet& other : {causal, single, tiles}) {
    const at::Tensor in_a = a.to_mask(), in_b = other.to_mask();
    for (const auto& [found, expected] : {std::pair(a.united_with(other), in_a.logical_or(in_b)),
                                          {other.united_with(a), in_a.logical_or(in_b)},
                                          {a.minus(other), in_a.logical_and(in_b.logical_not())},
                                          {other.minus(a), in_b.logical_and(in_a.logical_not())}}) {
      EXPECT_FALSE(found.squares());
      EXPECT_TRUE(at::equal(found.to_mask(), expected));
    }
  }
}

TEST_P(SquareEdgesOn, RestrictionsStaySquaresAndDropThoseWithoutPairs) {
  const at::Tensor keys = kit::padded_keys(2, 53).to(device()), queries = queries_that_count().to(device());
  for (const SquarePairs& which : pairs()) {
    const EdgeSet given = EdgeSet::from_squares(squares(0.8, 6, true), which);
    const at::Tensor mask = given.to_mask();
    const at::Tensor at_key = at::arange(53, mask.options().dtype(at::kLong)),
                     at_query = at::arange(75, at_key.options()).unsqueeze(1);
    const at::Tensor of_keys = keys.view({2, 1, 1, 53}), of_queries = queries.view({2, 1, 75, 1});
    for (const auto& [found, expected] :
         {std::pair(given.restricted_to_keys(keys), mask.logical_and(of_keys)),
          {given.restricted_to_keys(kit::other_bytes(keys)), mask.logical_and(of_keys)},
          {given.restricted_to_queries(queries), mask.logical_and(of_queries)},
          {given.restricted_to_queries(kit::other_bytes(queries)), mask.logical_and(of_queries)},
          {given.causal(), mask.logical_and(at_key <= at_query)},
          {given.causal(7), mask.logical_and(at_key <= at_query + 7)},
          {given.causal().restricted_to_keys(keys).restricted_to_queries(queries),
           mask.logical_and(at_key <= at_query).logical_and(of_keys).logical_and(of_queries)}}) {
      ASSERT_TRUE(found.squares());
      EXPECT_TRUE(at::equal(found.to_mask(), expected));
      EXPECT_TRUE(pairs_per_square(*found.squares(), found.square_pairs()).gt(0).all().item<bool>());
    }
    const at::Tensor keep = kit::rand({given.edge_count()}, 8).to(device()) < 0.5;
    EXPECT_TRUE(at::equal(given.kept(keep).to_mask(), at::zeros_like(mask).masked_scatter(mask, keep)));
  }
}

TEST_P(SquareEdgesOn, FilesKeepTheSquares) {
  const kit::ScratchFolder folder;
  const std::string path = folder.file("edges.safetensors");
  for (const SquarePairs& which : pairs()) {
    const EdgeSet given = EdgeSet::from_squares(squares(0.5, 7, true), which);
    given.save(path);
    const EdgeSet found = EdgeSet::load(path);
    ASSERT_TRUE(found.squares());
    EXPECT_EQ(found.shape(), kTokenShape);
    EXPECT_TRUE(at::equal(found.square_groups().to_mask(), given.square_groups().to_mask().cpu()));
    EXPECT_TRUE(at::equal(found.to_mask(), given.to_mask().cpu()));
    EXPECT_TRUE(found.united_with(given.to(at::kCPU)).squares()) << "the same pairs";
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SquareEdgesOn, kit::devices(), kit::device_name);

TEST(SquareEdges, FilesAreCheckedAsTheyAreRead) {
  const kit::ScratchFolder folder;
  const std::string path = folder.file("edges.safetensors");
  EdgeSet::from_squares(squares_from_mask(kTokenShape, mask_of_groups(0.5, 8)),
                        {.key_bits = key_bits_of(kit::padded_keys(2, 53))})
      .save(path);
  const io::TensorFile good = io::load_safetensors(path);
  const auto refusal = [&](const auto& spoil) {
    io::TensorFile file = good;
    spoil(file);
    io::save_safetensors(path, file);
    return kit::message_of([&] { EdgeSet::load(path); });
  };
  EXPECT_EQ(refusal([](io::TensorFile&) {}), "no error");
  EXPECT_THAT(refusal([](io::TensorFile& f) { f.tensors.erase("square_cols"); }),
              AllOf(HasSubstr(path), HasSubstr("no tensor 'square_cols'")));
  EXPECT_THAT(refusal([](io::TensorFile& f) { f.tensors.erase("causal"); }), HasSubstr("no tensor 'causal'"));
  EXPECT_THAT(refusal([](io::TensorFile& f) {
                f.tensors["square_cols"] = f.tensors["square_cols"].clone().fill_(9);
              }),
              HasSubstr("columns in [0, 4)"));
  EXPECT_THAT(refusal([](io::TensorFile& f) {
                f.tensors["key_bits"] = f.tensors["key_bits"].narrow(1, 0, 3).contiguous();
              }),
              HasSubstr("key_bits [2, 4]"));
  EXPECT_THAT(refusal([](io::TensorFile& f) { f.metadata["format"] = "edgewise.edge_set.squares.2"; }),
              HasSubstr("another version"));
}

TEST(SquareEdges, FromSquaresSaysWhatIsWrong) {
  const Squares good = squares_from_mask(kTokenShape, mask_of_groups(0.5, 9));
  const auto refusal = [&](const SquarePairs& pairs) {
    return kit::message_of([&] { EdgeSet::from_squares(good, pairs); });
  };
  EXPECT_EQ(refusal({}), "no error");
  EXPECT_THAT(refusal({.key_bits = at::ones({2, 4})}),
              HasSubstr("key_bits [2, 4] of dtype int32; got Float"));
  EXPECT_THAT(refusal({.key_bits = at::ones({2, 5}, at::kInt)}), HasSubstr("of shape [2, 5]"));
  EXPECT_THAT(refusal({.query_mask = at::ones({2, 53}, at::kBool)}), HasSubstr("query_mask [2, 75]"));
  Squares bad = good;
  bad.cols = good.cols.clone().fill_(4);
  EXPECT_THAT(kit::message_of([&] { EdgeSet::from_squares(bad, {}); }), HasSubstr("key groups in [0, 4)"));
  const EdgeSet single = EdgeSet::none(kTokenShape);
  EXPECT_FALSE(single.squares());
  EXPECT_THAT(kit::message_of([&] { single.square_groups(); }), HasSubstr("born as squares"));
}

}  // namespace
}  // namespace edgewise::graph
