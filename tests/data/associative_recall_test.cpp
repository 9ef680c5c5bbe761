#include <edgewise/data/associative_recall.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

namespace edgewise::data {
namespace {

TEST(AssociativeRecall, EveryQuestionHasOneFactAndItsValueIsTheLabel) {
  const AssociativeRecall dataset({.length = 12, .keys = 9, .values = 4});
  const std::vector<int64_t> indices = {0, 1, 2, 3, 4, 5, 6, 7};
  const Batch batch = dataset.batch(Split::kTrain, indices);
  const at::Tensor right = dataset.right_edges(batch);
  for (int64_t b = 0; b < 8; ++b) {
    std::set<int64_t> keys;
    for (int64_t i = 0; i < 12; ++i) {
      const int64_t token = batch.towers[0].tokens[b][i].item<int64_t>(),
                    label = batch.labels[b][i].item<int64_t>();
      EXPECT_LT(token, dataset.vocabulary());
      if (i < 6) {
        EXPECT_TRUE(keys.insert((token - 1) / 4).second) << "keys of a sequence are distinct";
        EXPECT_EQ(label, -1);
        EXPECT_FALSE(right[b][i].any().item<bool>());
        continue;
      }
      ASSERT_EQ(right[b][i].sum().item<int64_t>(), 1);
      const int64_t j = right[b][i].to(at::kLong).argmax().item<int64_t>();
      const int64_t fact = batch.towers[0].tokens[b][j].item<int64_t>() - 1;
      EXPECT_EQ(fact / 4, token - 1 - 9 * 4);
      EXPECT_EQ(fact % 4, label);
    }
  }
}

TEST(AssociativeRecall, IsReproducibleAndSplitsDiffer) {
  const AssociativeRecall dataset({.length = 16, .values = 4});
  const std::vector<int64_t> one = {5}, many = {3, 5};
  EXPECT_TRUE(at::equal(dataset.batch(Split::kTrain, one).towers[0].tokens[0],
                        dataset.batch(Split::kTrain, many).towers[0].tokens[1]));
  EXPECT_FALSE(at::equal(dataset.batch(Split::kTrain, one).towers[0].tokens,
                         dataset.batch(Split::kTest, one).towers[0].tokens));
  EXPECT_THROW(AssociativeRecall({.length = 7}), c10::ValueError);
  EXPECT_THROW(AssociativeRecall({.length = 16, .keys = 7}), c10::ValueError);
}

}  // namespace
}  // namespace edgewise::data
