// Squares against dense masks: conversions, the transposed list, set operations, counts, and what is refused.
#include "graph/squares/squares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/checks.h"
#include "kit/devices.h"
#include "kit/message_of.h"
#include "kit/other_bytes.h"
#include "kit/square_cases.h"

namespace edgewise::graph {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const EdgeShape kTokens{2, 3, 75, 53};  // 5 query groups, 4 key groups

at::Tensor group_mask(double density, int64_t seed) {
  return kit::rand({2, 3, 5, 4}, seed, at::kDouble) < density;
}

class SquaresOn : public kit::DeviceTest {
 protected:
  Squares random(double density, int64_t seed, bool gaps = false) const {
    const Squares squares = squares_from_mask(kTokens, group_mask(density, seed));
    return kit::to_device(gaps ? kit::with_gaps(squares) : squares, device());
  }
  SquarePairs masked_causal() const { return {key_bits_of(kit::padded_keys(2, 53)).to(device()), true, 5}; }
};

TEST_P(SquaresOn, MaskRoundTrip) {
  for (const double density : {0.0, 0.4, 1.0})
    for (const bool gaps : {false, true}) {
      const Squares squares = random(density, 1, gaps);
      EXPECT_TRUE(at::equal(mask_of_squares(squares).cpu(), group_mask(density, 1)));
      EXPECT_TRUE(at::equal(groups_of_squares(squares).to_mask().cpu(), group_mask(density, 1)));
      check_squares("test", squares);
    }
}

TEST_P(SquaresOn, TransposedListsEverySquareByKeyGroup) {
  for (const bool gaps : {false, true}) {
    const Squares squares = random(0.5, 2, gaps);
    const TransposedSquares found = transposed(squares);
    const at::Tensor begin = found.begin.cpu(), count = found.count.cpu(), rows = found.rows.cpu(),
                     places = found.places.cpu(), cols = squares.cols.cpu(), first = squares.begin.cpu(),
                     length = squares.count.cpu();
    const at::Tensor rebuilt = at::zeros({6, 5, 4}, at::kBool);
    ASSERT_EQ(begin.size(0), 2 * 3 * 4);
    for (int64_t column = 0; column < begin.size(0); ++column) {
      const int32_t from = begin[column].item<int32_t>(), to = from + count[column].item<int32_t>();
      for (int32_t n = from; n < to; ++n) {
        const int64_t group = rows[n].item<int32_t>(), place = places[n].item<int32_t>(),
                      row = column / 4 * 5 + group;
        rebuilt[column / 4][group][column % 4] = true;
        EXPECT_TRUE(n == from || rows[n - 1].item<int32_t>() < group);
        EXPECT_EQ(cols[place].item<int32_t>(), column % 4);
        EXPECT_GE(place, first[row].item<int32_t>());
        EXPECT_LT(place, first[row].item<int32_t>() + length[row].item<int32_t>());
      }
    }
    EXPECT_TRUE(at::equal(rebuilt.view({2, 3, 5, 4}), group_mask(0.5, 2)));
  }
}

TEST_P(SquaresOn, SetOperations) {
  const Squares a = random(0.5, 3, true), b = random(0.4, 4);
  const at::Tensor in_a = group_mask(0.5, 3), in_b = group_mask(0.4, 4);
  EXPECT_TRUE(at::equal(mask_of_squares(united(a, b)).cpu(), in_a.logical_or(in_b)));
  EXPECT_TRUE(at::equal(mask_of_squares(without(a, b)).cpu(), in_a.logical_and(in_b.logical_not())));
  Squares other = b;
  other.shape.keys = 60;
  EXPECT_THAT(kit::message_of([&] { united(a, other); }), AllOf(HasSubstr("S=53"), HasSubstr("S=60")));
}

TEST_P(SquaresOn, PairsAsMaskAsEdgesAndCounted) {
  const Squares squares = random(0.6, 5, true);
  for (const SquarePairs& pairs : {SquarePairs{}, SquarePairs{{}, true, 0}, masked_causal()}) {
    const at::Tensor mask = pair_mask(squares, pairs);
    const EdgeSet edges = edges_of_squares(squares, pairs);
    EXPECT_TRUE(at::equal(edges.to_mask(), mask));
    check_csr("test", edges.shape(), edges.row_offsets(), edges.col_indices());
    EXPECT_TRUE(at::equal(pairs_per_head(squares, pairs), mask.sum({2, 3})));
  }
}

TEST_P(SquaresOn, KeyBitsAreTheMask) {
  const at::Tensor mask = kit::padded_keys(2, 53);
  const at::Tensor bits = key_bits_of(mask.to(device())).cpu();
  EXPECT_TRUE(at::equal(key_bits_of(kit::other_bytes(mask).to(device())).cpu(), bits));
  ASSERT_EQ(bits.sizes(), at::IntArrayRef({2, 4}));
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t j = 0; j < 64; ++j)
      EXPECT_EQ(bits[b][j / 16].item<int32_t>() >> (j % 16) & 1, j < 53 && mask[b][j].item<bool>());
}

TEST_P(SquaresOn, ChecksNameTheRow) {
  const Squares good = squares_from_mask(kTokens, at::ones({2, 3, 5, 4}, at::kBool));
  const auto refusal = [&](const auto& spoil) {
    Squares squares = good;
    squares.begin = good.begin.clone(), squares.count = good.count.clone(), squares.cols = good.cols.clone();
    spoil(squares);
    return kit::message_of([&] { check_squares("here", kit::to_device(squares, device())); });
  };
  EXPECT_EQ(refusal([](Squares&) {}), "no error");
  EXPECT_THAT(refusal([](Squares& s) { s.cols = s.cols.to(at::kLong); }),
              HasSubstr("cols of dtype int32; got Long"));
  EXPECT_THAT(refusal([](Squares& s) { s.begin = s.begin.narrow(0, 0, 29); }),
              HasSubstr("begin [B*H*groups(L)] = [30]; got [29]"));
  EXPECT_THAT(refusal([](Squares& s) { s.cols[9] = 4; }), HasSubstr("key groups in [0, 4); row 2 has 4"));
  EXPECT_THAT(refusal([](Squares& s) { s.cols[9] = -1; }), HasSubstr("row 2 has -1"));
  EXPECT_THAT(refusal([](Squares& s) { s.cols[5] = 0; }), HasSubstr("row 1 has 0 before 0"));
  EXPECT_THAT(refusal([](Squares& s) { s.count[29] = 5; }), HasSubstr("row 29 has 5 from 116 on"));
  EXPECT_THAT(refusal([](Squares& s) { s.begin[3] = -1; }), HasSubstr("row 3 has 4 from -1 on"));
  EXPECT_THAT(refusal([](Squares& s) { s.begin[7] = 24; }), HasSubstr("share no place; rows "));
}

TEST(Squares, FromGroupsSaysWhatFits) {
  EXPECT_THAT(kit::message_of([] {
                squares_from_groups(kTokens, EdgeSet::none({2, 3, 5, 5}));
              }),
              AllOf(HasSubstr("[B=2, H=3, L=5, S=4]"), HasSubstr("S=5")));
  EXPECT_THAT(kit::message_of([] {
                squares_from_mask(kTokens, at::ones({2, 3, 5, 4}));
              }),
              HasSubstr("expected a boolean mask"));
}

INSTANTIATE_TEST_SUITE_P(Devices, SquaresOn, kit::devices(), kit::device_name);

}  // namespace
}  // namespace edgewise::graph
