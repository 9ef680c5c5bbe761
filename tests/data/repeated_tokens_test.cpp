// RepeatedTokens: labels by brute force, repeatability, and the majority baseline.
#include <edgewise/data/repeated_tokens.h>

#include <numeric>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "data/expect_error.h"

namespace edgewise::data {
namespace {

std::vector<int64_t> range(int64_t first, int64_t count) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

TEST(RepeatedTokens, LabelsSayWhetherTheTokenOccursElsewhere) {
  const RepeatedTokens dataset({.length = 32});
  const Batch batch = dataset.batch(Split::kTrain, range(0, 16));
  const at::Tensor tokens = batch.towers[0].tokens;
  const at::Tensor same = tokens.unsqueeze(2).eq(tokens.unsqueeze(1)).sum(2);  // every token equals itself
  EXPECT_TRUE(at::equal(batch.labels, same.gt(1).to(at::kLong)));
  EXPECT_TRUE(batch.towers[0].mask.all().item<bool>());
  EXPECT_GE(tokens.min().item<int64_t>(), 1);
  EXPECT_LE(tokens.max().item<int64_t>(), 32);
  EXPECT_EQ(dataset.vocabulary(), 33);
}

TEST(RepeatedTokens, AnExampleDependsOnlyOnSeedSplitAndIndex) {
  const RepeatedTokens dataset({.length = 16, .seed = 7});
  const at::Tensor all = dataset.batch(Split::kTrain, range(0, 8)).towers[0].tokens;
  const std::vector<int64_t> some = {5, 2};
  const at::Tensor picked =
      RepeatedTokens({.length = 16, .seed = 7}).batch(Split::kTrain, some).towers[0].tokens;
  EXPECT_TRUE(at::equal(picked[0], all[5]));
  EXPECT_TRUE(at::equal(picked[1], all[2]));
  EXPECT_FALSE(at::equal(dataset.batch(Split::kTest, range(0, 8)).towers[0].tokens, all));
  EXPECT_FALSE(at::equal(
      RepeatedTokens({.length = 16, .seed = 8}).batch(Split::kTrain, range(0, 8)).towers[0].tokens, all));
}

TEST(RepeatedTokens, TheMajorityBaselineIsTheShareOfRepeatedTokens) {
  const RepeatedTokens dataset({.length = 256});
  EXPECT_NEAR(dataset.majority_accuracy(), 0.6314, 1e-4);
  // 2000 * 256 labels; the standard deviation of the mean is about 0.0007.
  const at::Tensor labels = dataset.batch(Split::kTrain, range(0, 2000)).labels;
  EXPECT_NEAR(labels.to(at::kDouble).mean().item<double>(), dataset.majority_accuracy(), 0.003);
}

TEST(RepeatedTokens, TokensAreUniform) {
  const int64_t n = 50, draws = n * 4000;
  const at::Tensor tokens =
      RepeatedTokens({.length = n}).batch(Split::kTrain, range(0, 4000)).towers[0].tokens;
  const at::Tensor count = at::bincount(tokens.flatten(), {}, n + 1).slice(0, 1).to(at::kDouble);
  const double expected = static_cast<double>(draws) / static_cast<double>(n);
  const double chi_square = ((count - expected).square() / expected).sum().item<double>();
  EXPECT_LT(chi_square, 94.6);  // 49 degrees of freedom, P = 1e-4
}

TEST(RepeatedTokens, MistakesAreExplained) {
  const RepeatedTokens dataset({.length = 4, .validation_size = 10});
  const std::vector<int64_t> beyond = {10};
  EXPECT_ERROR(dataset.batch(Split::kValidation, beyond),
               "expected an index in 0..9 of split validation; got 10");
  EXPECT_ERROR(dataset.batch(Split::kValidation, {}), "at least one index");
  EXPECT_ERROR(RepeatedTokens({.length = 0}), "expected a length of at least 1; got 0");
}

}  // namespace
}  // namespace edgewise::data
