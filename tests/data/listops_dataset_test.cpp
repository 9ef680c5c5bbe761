// ListOpsDataset: padding, both length modes, and the baselines on a set small enough to count by hand.
#include <edgewise/data/listops_dataset.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <edgewise/data/listops_file.h>

#include "data/expect_error.h"
#include "data/listops_tokens.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;

ListOpsData small() {
  ListOpsData data;
  data.train.add(listops("[MIN 0 4 X"), 0);
  data.train.add(listops("[MIN 0 5 X"), 0);
  data.train.add(listops("[MAX 9 1 X"), 9);
  data.train.add(listops("[MAX 3 9 X"), 9);
  data.train.add(listops("[MAX 3 2 [SM 9 X X"), 9);
  data.validation.add(listops("[MIN 7 3 0 X"), 0);
  data.validation.add(listops("[MAX 7 9 X"), 9);
  data.validation.add(listops("[MAX 7 1 X"), 7);
  data.validation.add(listops("[MIN 7 1 X"), 1);
  return data;
}

const std::vector<int64_t> kBoth = {0, 4};

TEST(ListOpsDataset, BatchesArePaddedToAMultipleOf64) {
  const ListOpsDataset dataset(small());
  const Batch batch = dataset.batch(Split::kTrain, kBoth);
  ASSERT_EQ(batch.towers[0].tokens.sizes(), (std::vector<int64_t>{2, 64}));
  EXPECT_TRUE(at::equal(batch.towers[0].tokens[0].slice(0, 0, 5), at::tensor({1, 6, 10, 5, 0}, at::kLong)));
  EXPECT_EQ(batch.towers[0].tokens[0].slice(0, 4).sum().item<int64_t>(), 0);
  EXPECT_TRUE(at::equal(batch.towers[0].mask, batch.towers[0].tokens.ne(0)));
  EXPECT_TRUE(at::equal(batch.labels, at::tensor({0, 9}, at::kLong)));
  EXPECT_EQ(dataset.vocabulary(), 32);
  EXPECT_EQ(dataset.classes(), 10);
  EXPECT_EQ(dataset.max_length(), 2048);
}

TEST(ListOpsDataset, FixedLengthPadsAsPublished) {
  const ListOpsDataset dataset(small(), {.fixed_length = true});
  EXPECT_EQ(dataset.batch(Split::kTrain, kBoth).towers[0].tokens.size(1), 2048);
  const ListOpsDataset tight(small(), {.max_length = 10, .pad_to = 10});
  EXPECT_EQ(tight.batch(Split::kTrain, kBoth).towers[0].tokens.size(1), 10);
}

TEST(ListOpsDataset, ReadsAFolder) {
  const ScratchFolder folder;
  write_listops(folder.path(), small());
  const ListOpsDataset dataset(folder.path(), {.verify = false});
  EXPECT_EQ(dataset.size(Split::kTrain), 5);
  EXPECT_EQ(dataset.size(Split::kValidation), 4);
  EXPECT_EQ(dataset.size(Split::kTest), 0);
  EXPECT_TRUE(at::equal(dataset.batch(Split::kTrain, kBoth).towers[0].tokens,
                        ListOpsDataset(small()).batch(Split::kTrain, kBoth).towers[0].tokens));
}

TEST(ListOpsDataset, BaselinesAreFittedOnTrain) {
  const ListOpsDataset dataset(small());
  EXPECT_DOUBLE_EQ(prior_baseline(dataset, Split::kValidation), 0.25);       // always 9
  EXPECT_DOUBLE_EQ(first_token_baseline(dataset, Split::kValidation), 0.5);  // MIN -> 0, MAX -> 9
  EXPECT_ERROR(prior_baseline(dataset, Split::kTest), "expected examples in split test; found none");
}

TEST(ListOpsDataset, MistakesAreExplained) {
  EXPECT_ERROR(ListOpsDataset(small(), {.max_length = 20, .pad_to = 16}), "max_length 20 and pad_to 16");
  EXPECT_ERROR(ListOpsDataset(small(), {.max_length = 4}), "found 7 in example 4 of split train");
  EXPECT_ERROR(ListOpsDataset("/nowhere"), "edgewise data listops --out FOLDER");
  const std::vector<int64_t> beyond = {5};
  EXPECT_ERROR(ListOpsDataset(small()).batch(Split::kTrain, beyond), "expected an index in 0..4");
}

}  // namespace
}  // namespace edgewise::data
