// BatchOrder: every pass is a permutation, steps are a function of (seed, step); evaluation covers everything
// once.
#include <edgewise/data/batches.h>

#include <algorithm>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "data/expect_error.h"

namespace edgewise::data {
namespace {

std::vector<int64_t> stream(BatchOrder order, int64_t steps) {
  std::vector<int64_t> all;
  for (int64_t step = 0; step < steps; ++step) {
    const auto indices = order.indices(step);
    all.insert(all.end(), indices.begin(), indices.end());
  }
  return all;
}

TEST(BatchOrder, EveryPassIsANewPermutationAndBatchesStraddlePasses) {
  // 10 examples in batches of 4: step 2 holds the end of pass 0 and the start of pass 1.
  const auto all = stream(BatchOrder(10, 4, 3), 5);
  std::vector<int64_t> first(all.begin(), all.begin() + 10), second(all.begin() + 10, all.end());
  EXPECT_NE(first, second);
  EXPECT_TRUE(std::is_permutation(first.begin(), first.end(), second.begin()));
  std::sort(first.begin(), first.end());
  std::vector<int64_t> expected(10);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(first, expected);
}

TEST(BatchOrder, AStepDependsOnlyOnSeedAndStep) {
  BatchOrder in_order(100, 7, 5), resumed(100, 7, 5);
  std::vector<std::vector<int64_t>> steps;
  for (int64_t step = 0; step < 60; ++step) steps.push_back(in_order.indices(step));
  for (const int64_t step : {59, 14, 15, 0, 33})
    EXPECT_EQ(resumed.indices(step), steps[static_cast<size_t>(step)]);
  EXPECT_NE(BatchOrder(100, 7, 6).indices(0), steps[0]);
}

TEST(BatchOrder, ABatchMayBeLargerThanTheDataset) {
  const auto indices = BatchOrder(3, 8, 0).indices(0);
  for (int64_t example = 0; example < 3; ++example) EXPECT_GE(std::ranges::count(indices, example), 2);
}

TEST(BatchOrder, ShufflesAreUniform) {
  // Each of the 6 orders of 3 examples, 6000 passes: 5 degrees of freedom, P = 1e-4.
  const auto all = stream(BatchOrder(3, 3, 11), 6000);
  std::map<std::vector<int64_t>, int> count;
  for (size_t i = 0; i < all.size(); i += 3) ++count[{all[i], all[i + 1], all[i + 2]}];
  double chi_square = 0;
  for (const auto& [order, times] : count) chi_square += (times - 1000.0) * (times - 1000.0) / 1000.0;
  EXPECT_EQ(count.size(), 6u);
  EXPECT_LT(chi_square, 25.7);
}

TEST(EvaluationIndices, GoThroughOnceAndKeepTheLastPartialBatch) {
  EXPECT_EQ(evaluation_batches(10, 4), 3);
  EXPECT_EQ(evaluation_batches(8, 4), 2);
  EXPECT_EQ(evaluation_batches(0, 4), 0);
  EXPECT_EQ(evaluation_indices(10, 4, 0), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(evaluation_indices(10, 4, 2), (std::vector<int64_t>{8, 9}));
}

TEST(Batches, MistakesAreExplained) {
  EXPECT_ERROR(BatchOrder(0, 4, 0), "at least 1 example; got 0");
  EXPECT_ERROR(BatchOrder(4, 0, 0), "a batch of at least 1 example; got 0");
  EXPECT_ERROR(BatchOrder(4, 1, 0).indices(-1), "a step of at least 0; got -1");
  EXPECT_ERROR(evaluation_indices(10, 4, 3), "expected a batch in 0..2; got 3");
}

}  // namespace
}  // namespace edgewise::data
