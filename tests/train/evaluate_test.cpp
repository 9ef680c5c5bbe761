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

TEST(Evaluate, TellsTheShareOfValidPairsAndTheEdgesOnThem) {
  const tasks::SequenceLabels task(std::make_shared<UnevenSequences>());
  const double valid = 12 * 12 + 2 * 2 + 7 * 7 + 1 + 4 * 4, all = 5 * 12 * 12;
  EvaluationOptions options;
  options.batch_size = 2;
  options.count_valid = true;
  auto ours = tiny_model<SequenceClassifier>(sbm_factory());
  const Evaluation without = evaluate(*ours, task, data::Split::kTest, options);
  EXPECT_DOUBLE_EQ(without.valid_pairs, valid / all);
  EXPECT_FALSE(without.valid_density.defined()) << "its density is that of valid pairs";

  auto published = tiny_model<SequenceClassifier>(
      [](int64_t) -> EdgeSourcePtr { return SbmEdges(SbmEdgesOptions(2, 8, SbmPreset::kPublished)).ptr(); });
  options.count_padding = true;
  options.batch_size = 5;
  const Evaluation found = evaluate(*published, task, data::Split::kTest, options);
  // The same edges, counted one by one.
  const std::vector<int64_t> indices = {0, 1, 2, 3, 4}, lengths = {12, 2, 7, 1, 4};
  torch::NoGradGuard no_grad;
  const ModelOutput output = published->forward({.batch = task.data().batch(data::Split::kTest, indices),
                                                 .random = evaluation_stream(0, 0, 0),
                                                 .keep_edges = true});
  for (size_t layer = 0; layer < output.edges.size(); ++layer) {
    const at::Tensor mask = output.edges[layer].to_mask();
    for (int64_t head = 0; head < mask.size(1); ++head) {
      int64_t edges = 0;
      for (int64_t item = 0; item < 5; ++item)
        for (int64_t query = 0; query < lengths[static_cast<size_t>(item)]; ++query)
          for (int64_t key = 0; key < lengths[static_cast<size_t>(item)]; ++key)
            edges += mask[item][head][query][key].item<bool>();
      const auto at = [&](const at::Tensor& densities) {
        return densities[static_cast<int64_t>(layer)][head].item<double>();
      };
      EXPECT_NEAR(at(found.valid_density), static_cast<double>(edges) / valid, 1e-12);
      EXPECT_NE(at(found.valid_density), at(found.density)) << "which counts padding";
    }
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
