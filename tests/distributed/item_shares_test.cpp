// Every item is of one rank; shares of a step add up to the step.
#include <gtest/gtest.h>

#include <torch/torch.h>

#include <edgewise/tasks/task.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/step.h>
#include <edgewise/train/task_kinds.h>

#include <algorithm>

#include "train/ranks/item_shares.h"
#include "train/tiny_run.h"

namespace edgewise::train {
namespace {

TEST(ItemShares, EveryItemIsOfOneRank) {
  for (const int64_t items : {1, 5, 8, 13})
    for (const int64_t micro : {0, 1, 2, 5})
      for (const int64_t ranks : {1, 2, 4}) {
        const ItemShares shares{.items = items, .micro_batch = micro, .ranks = ranks};
        std::vector<int64_t> all;
        for (int64_t rank = 0; rank < ranks; ++rank)
          for (const int64_t item : shares.of(rank)) all.push_back(item);
        std::ranges::sort(all);
        ASSERT_EQ(std::ssize(all), items);
        for (int64_t item = 0; item < items; ++item) EXPECT_EQ(all[static_cast<size_t>(item)], item);
      }
}

TEST(ItemShares, MicroBatchesGoRound) {
  const ItemShares shares{.items = 8, .micro_batch = 2, .ranks = 2};
  EXPECT_EQ(shares.of(0), (std::vector<int64_t>{0, 1, 4, 5}));
  EXPECT_EQ(shares.of(1), (std::vector<int64_t>{2, 3, 6, 7}));
  const at::Tensor rows = torch::arange(16).reshape({8, 2});
  const at::Tensor by_rank = torch::cat({shares.rows_of(0, rows), shares.rows_of(1, rows)});
  EXPECT_FALSE(torch::equal(by_rank, rows));
  EXPECT_TRUE(torch::equal(shares.in_order(by_rank), rows));
}

TEST(ItemShares, TheFirstRankHasAPartOfEveryBatch) {
  const ItemShares shares{.items = 2, .micro_batch = 0, .ranks = 4};
  EXPECT_EQ(shares.of(0), (std::vector<int64_t>{0}));
  EXPECT_EQ(shares.of(1), (std::vector<int64_t>{1}));
  EXPECT_TRUE(shares.of(3).empty());
}

// In one process, one share after the other: what the ranks compute before they add up.
TEST(ItemShares, GradientsAndReportsOfSharesAddUpToThoseOfTheStep) {
  const Recipe recipe = tiny_run::tiny_recipe({"train.micro_batch=2"});
  const auto data = tiny_run::tiny_data(recipe);
  const tasks::TaskPtr task = task_over(recipe, data);
  const ModelPtr model = build_model(recipe, *task);
  model->train();
  std::vector<int64_t> indices(8);
  std::iota(indices.begin(), indices.end(), 3);
  const RandomStream random{.seed = 7, .step = 2};
  StepOptions options;
  options.micro_batch = 2;
  options.density_weight = 0.1;
  const auto gradients = [&] {
    std::vector<at::Tensor> result;
    for (const at::Tensor& parameter : model->parameters())
      result.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    model->zero_grad();
    return result;
  };
  const Batch whole = data->batch(data::Split::kTrain, indices);
  const StepReport report = accumulate_gradients(*model, whole, options, random);
  const std::vector<at::Tensor> expected = gradients();
  const StepShare counted = count_share(whole, options);

  const ItemShares shares{.items = 8, .micro_batch = 2, .ranks = 4};
  double loss = 0, accuracy = 0;
  int64_t edges = 0;
  at::Tensor density;
  for (int64_t rank = 0; rank < 4; ++rank) {
    StepShare share = counted;
    for (const ItemShares::Part& part : shares.parts(rank)) share.first_items.push_back(part.first);
    options.share = &share;
    const StepReport part = accumulate_gradients(
        *model, data->batch(data::Split::kTrain, shares.taken_from(indices, rank)), options, random);
    loss += part.loss;
    accuracy += part.accuracy;
    edges += part.edges;
    density = density.defined() ? density + part.density : part.density;
  }
  const std::vector<at::Tensor> found = gradients();
  EXPECT_EQ(edges, report.edges);
  EXPECT_NEAR(loss, report.loss, 1e-6);
  EXPECT_NEAR(accuracy, report.accuracy, 1e-12);
  EXPECT_TRUE(torch::allclose(density, report.density, 1e-12, 1e-12));
  ASSERT_EQ(found.size(), expected.size());
  for (size_t n = 0; n < found.size(); ++n) {
    ASSERT_EQ(found[n].defined(), expected[n].defined());
    if (!found[n].defined()) continue;
    EXPECT_TRUE(torch::allclose(found[n], expected[n], 1e-5, 1e-7)) << n;
  }
}

}  // namespace
}  // namespace edgewise::train
