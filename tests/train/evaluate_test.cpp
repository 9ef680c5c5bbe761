// Evaluation of a split gives the same figures whatever the batch size.
#include <edgewise/train/evaluate.h>

#include <algorithm>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "models/tiny_model.h"

namespace edgewise::train {
namespace {

using namespace testing_kit;

// Five sequences of very different lengths, each batch padded to its own longest.
class UnevenSequences : public data::Dataset {
 public:
  std::string name() const override { return "uneven"; }
  int64_t size(data::Split) const override { return static_cast<int64_t>(kLengths.size()); }
  int64_t vocabulary() const override { return 11; }
  int64_t classes() const override { return 3; }
  int64_t max_length() const override { return 12; }
  Batch batch(data::Split, std::span<const int64_t> indices) const override {
    std::vector<int64_t> lengths;
    for (const int64_t index : indices) lengths.push_back(kLengths.at(static_cast<size_t>(index)));
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    const at::Tensor rows = torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()));
    const at::Tensor mask = length_mask(lengths, longest);
    const at::Tensor all = random_tokens(size({}), max_length(), 4).index({rows});
    return {.towers = {{.tokens = all.narrow(1, 0, longest) * mask, .mask = mask}},
            .labels = rows.remainder(3)};
  }

  const std::vector<int64_t> kLengths = {12, 2, 7, 1, 4};
};

TEST(Evaluate, NothingDependsOnTheBatchSize) {
  auto model = tiny_model<SequenceClassifier>(sbm_factory());
  const tasks::SequenceLabels task(std::make_shared<UnevenSequences>());
  const auto with = [&](int64_t batch_size) {
    EvaluationOptions options;
    options.batch_size = batch_size;
    options.draws = 2;
    return evaluate(*model, task, data::Split::kTest, options);
  };
  const Evaluation whole = with(5);
  EXPECT_GT(whole.density.std().item<double>(), 0) << "heads of one density would prove little";
  for (const int64_t batch_size : {1, 2, 3, 4}) {
    const Evaluation parts = with(batch_size);
    EXPECT_TRUE(torch::allclose(parts.density, whole.density, 1e-9, 0))
        << "batch size " << batch_size << ": " << parts.density << " instead of " << whole.density;
    EXPECT_NEAR(parts.loss, whole.loss, 1e-5);
    EXPECT_EQ(parts.accuracy, whole.accuracy);
  }
}

TEST(Evaluate, TellsItsProgress) {
  auto model = tiny_model<SequenceClassifier>(sbm_factory());
  EvaluationOptions options;
  options.batch_size = 2;
  std::vector<std::pair<int64_t, int64_t>> told;
  options.progress = [&](int64_t done, int64_t total) { told.emplace_back(done, total); };
  evaluate(*model, tasks::SequenceLabels(std::make_shared<UnevenSequences>()), data::Split::kTest, options);
  EXPECT_EQ(told, (std::vector<std::pair<int64_t, int64_t>>{{0, 5}, {2, 5}, {4, 5}, {5, 5}}));
  told.clear();
  options.max_examples = 3;
  evaluate(*model, tasks::SequenceLabels(std::make_shared<UnevenSequences>()), data::Split::kTest, options);
  EXPECT_EQ(told, (std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {2, 3}, {3, 3}}));
}

}  // namespace
}  // namespace edgewise::train
