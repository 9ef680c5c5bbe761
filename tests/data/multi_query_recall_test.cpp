#include <edgewise/data/multi_query_recall.h>
#include <edgewise/data/needle.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <numeric>
#include <set>

namespace edgewise::data {
namespace {

std::vector<int64_t> first(int64_t count) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// [B, N]: the label of every token that has one, else -1.
at::Tensor labels_of_tokens(const Batch& batch) {
  return at::full_like(batch.towers[0].tokens, -1).scatter(1, *batch.places(), batch.labels);
}

TEST(MultiQueryRecall, EveryPairIsAskedForOnceAndItsValueIsTheLabel) {
  constexpr int64_t kLength = 96, kPairs = 12, kFirstValue = 100;
  const MultiQueryRecall dataset({.length = kLength, .pairs = kPairs, .vocabulary = 200});
  const Batch batch = dataset.batch(Split::kTrain, first(20));
  const at::Tensor labels = labels_of_tokens(batch);
  const auto token = batch.towers[0].tokens.accessor<int64_t, 2>(), label = labels.accessor<int64_t, 2>();
  for (int64_t b = 0; b < 20; ++b) {
    std::map<int64_t, int64_t> pairs;
    for (int64_t i = 0; i < 2 * kPairs; i += 2) {
      EXPECT_TRUE(token[b][i] >= 1 && token[b][i] < kFirstValue);
      EXPECT_TRUE(token[b][i + 1] >= kFirstValue && token[b][i + 1] < dataset.vocabulary());
      EXPECT_TRUE(pairs.emplace(token[b][i], token[b][i + 1]).second) << "keys of a sequence are distinct";
      EXPECT_TRUE(label[b][i] == -1 && label[b][i + 1] == -1);
    }
    std::set<int64_t> asked;
    for (int64_t i = 2 * kPairs; i < kLength; ++i) {
      if (label[b][i] == -1) {
        EXPECT_GE(token[b][i], kFirstValue) << "noise is no key";
        continue;
      }
      EXPECT_EQ(i % 2, 0);
      EXPECT_TRUE(asked.insert(token[b][i]).second);
      EXPECT_EQ(pairs.at(token[b][i]), label[b][i]);
    }
    EXPECT_EQ(asked.size(), static_cast<size_t>(kPairs));
  }
}

// Gap g has weight g^(power - 1): most questions come soon, a few very late.
TEST(MultiQueryRecall, GapsFollowAPowerLaw) {
  constexpr int64_t kItems = 4000;
  const auto counts = [](double power) {  // of one question a sequence among 8 slots
    const MultiQueryRecall dataset({.length = 18, .pairs = 1, .vocabulary = 64, .power = power});
    const Batch batch = dataset.batch(Split::kTrain, first(kItems));
    return (labels_of_tokens(batch).slice(1, 2, 18, 2) != -1).sum(0).to(at::kDouble);
  };
  for (const double power : {0.01, 1.0}) {
    at::Tensor expected = at::arange(1, 9, at::kDouble).pow(power - 1);
    expected = expected / expected.sum() * kItems;
    const double chi_square = ((counts(power) - expected).square() / expected).sum().item<double>();
    EXPECT_LT(chi_square, 24.3) << "the 0.999 quantile with 7 degrees of freedom, at power " << power;
  }
  // Without replacement, which of the questions comes first says nothing of which pair it asks for.
  const MultiQueryRecall dataset({.length = 64, .pairs = 2, .vocabulary = 64});
  const Batch batch = dataset.batch(Split::kTrain, first(kItems));
  const at::Tensor is_asked = labels_of_tokens(batch) != -1;
  const at::Tensor soonest = is_asked.to(at::kLong).argmax(1);
  const at::Tensor first_pair = batch.towers[0].tokens.gather(1, soonest.unsqueeze(1)).squeeze(1) ==
                                batch.towers[0].tokens.select(1, 0);
  EXPECT_NEAR(first_pair.to(at::kDouble).mean().item<double>(), 0.5, 0.03);
}

TEST(MultiQueryRecall, IsReproducibleAndRefusesWhatDoesNotFit) {
  const MultiQueryRecall dataset({.length = 64, .pairs = 8});
  const std::vector<int64_t> one = {5}, many = {3, 5};
  EXPECT_TRUE(at::equal(dataset.batch(Split::kTrain, one).towers[0].tokens[0],
                        dataset.batch(Split::kTrain, many).towers[0].tokens[1]));
  EXPECT_FALSE(at::equal(dataset.batch(Split::kTrain, one).towers[0].tokens,
                         dataset.batch(Split::kTest, one).towers[0].tokens));
  EXPECT_THROW(MultiQueryRecall({.length = 31, .pairs = 8}), c10::ValueError);
  EXPECT_THROW(MultiQueryRecall({.length = 64, .pairs = 8, .vocabulary = 17}), c10::ValueError);
  EXPECT_NO_THROW(MultiQueryRecall({.length = 64, .pairs = 8, .vocabulary = 18}));
  EXPECT_THROW(MultiQueryRecall({.length = 64, .pairs = 8, .power = 0}), c10::ValueError);
  EXPECT_THROW(MultiQueryRecall({.length = 64, .pairs = 8, .test_size = 0}), c10::ValueError);
}

TEST(Needle, TheLastTokenAsksForOneOfThem) {
  constexpr int64_t kLength = 50, kPairs = 3, kKinds = 10;
  const Needle dataset({.length = kLength, .pairs = kPairs, .vocabulary = 40});
  EXPECT_EQ(dataset.classes(), kKinds);
  const Batch batch = dataset.batch(Split::kTrain, first(500));
  const at::Tensor labels = labels_of_tokens(batch);
  const auto token = batch.towers[0].tokens.accessor<int64_t, 2>(), label = labels.accessor<int64_t, 2>();
  std::set<int64_t> places;
  std::map<int64_t, int64_t> asked;  // the how-manieth needle
  for (int64_t b = 0; b < 500; ++b) {
    std::map<int64_t, int64_t> values, order;
    for (int64_t i = 0; i + 1 < kLength; ++i) {
      EXPECT_EQ(label[b][i], -1);
      if (token[b][i] > kKinds) continue;
      ASSERT_TRUE(token[b][i + 1] > kKinds && token[b][i + 1] <= 2 * kKinds) << "a value follows its key";
      ASSERT_LT(i + 1, kLength - 1);
      EXPECT_TRUE(values.emplace(token[b][i], token[b][i + 1] - 1 - kKinds).second);
      order.emplace(token[b][i], static_cast<int64_t>(order.size()));
      places.insert(i);
    }
    ASSERT_EQ(values.size(), static_cast<size_t>(kPairs));
    EXPECT_EQ(values.at(token[b][kLength - 1]), label[b][kLength - 1]);
    ++asked[order.at(token[b][kLength - 1])];
  }
  EXPECT_EQ(places.size(), static_cast<size_t>(kLength - 2)) << "anywhere before the question";
  for (int64_t n = 0; n < kPairs; ++n) EXPECT_NEAR(static_cast<double>(asked[n]), 500.0 / kPairs, 45);
}

TEST(Needle, RefusesWhatDoesNotFit) {
  EXPECT_NO_THROW(Needle({.length = 3, .pairs = 1}).batch(Split::kTest, first(3)));
  EXPECT_THROW(Needle({.length = 2}), c10::ValueError);
  EXPECT_THROW(Needle({.length = 64, .pairs = 5, .vocabulary = 16}), c10::ValueError);
  EXPECT_THROW(Needle({.length = 64, .vocabulary = 7}), c10::ValueError);
  EXPECT_THROW(Needle({.length = 64, .train_size = 0}), c10::ValueError);
}

}  // namespace
}  // namespace edgewise::data
