// One step: accumulated micro-batches equal the whole batch, and a value that is not finite is traced to its
// origin.
#include <edgewise/train/step.h>

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/train/optimizer.h>

#include "models/tiny_model.h"

namespace edgewise::train {
namespace {

using namespace testing_kit;

enum class Task { kSequence, kTokens, kTowers };

ModelPtr make_model(Task task, EdgeSourceFactory edges) {
  torch::manual_seed(5);
  ClassifierOptions options = tiny_options(std::move(edges));
  // Ordinary dropout follows torch's generator, hence the shape of the micro-batch; attention dropout follows
  // the item.
  options.encoder.dropout = 0;
  options.encoder.attention_dropout = options.encoder.edges ? 0.2 : 0;
  if (task == Task::kTokens) return TokenClassifier(options).ptr();
  if (task == Task::kTowers) return TwoTowerClassifier(options).ptr();
  return SequenceClassifier(options).ptr();
}

// Lengths differ, so that micro-batches differ in targets and in pairs.
Batch make_batch(Task task) {
  Batch batch;
  for (uint64_t tower = 0; tower < (task == Task::kTowers ? 2u : 1u); ++tower) {
    batch.towers.push_back(
        {.tokens = random_tokens(5, 10, tower),
         .mask = length_mask(
             tower == 0 ? std::vector<int64_t>{10, 3, 7, 1, 5} : std::vector<int64_t>{2, 9, 10, 4, 4}, 10)});
  }
  torch::manual_seed(6);
  batch.labels = task == Task::kTokens ? torch::randint(0, 3, {5, 10}, torch::kLong)
                                       : torch::randint(0, 3, {5}, torch::kLong);
  return batch;
}

class Accumulation : public testing::TestWithParam<std::tuple<Task, bool>> {};  // task, learned edges

TEST_P(Accumulation, EqualsTheWholeBatch) {
  const auto [task, learned] = GetParam();
  const auto model = make_model(task, learned ? sbm_factory() : EdgeSourceFactory{});
  const Batch batch = make_batch(task);
  const auto run = [&](int64_t micro) {
    model->zero_grad();
    const StepReport report = accumulate_gradients(
        *model, batch,
        {.micro_batch = micro, .density_weight = 0.3, .count_padding = false, .device = at::kCPU},
        {.seed = 3, .step = 8});
    std::map<std::string, at::Tensor> gradients;
    for (const auto& item : model->named_parameters()) {
      if (item.value().grad().defined()) gradients[item.key()] = item.value().grad().clone();
    }
    return std::pair(report, gradients);
  };
  const auto [whole, expected] = run(0);
  EXPECT_EQ(whole.penalty > 0, learned);
  for (const int64_t micro : {1, 2, 3, 5}) {
    const auto [report, gradients] = run(micro);
    EXPECT_NEAR(report.loss, whole.loss, 1e-5);
    EXPECT_NEAR(report.penalty, whole.penalty, 1e-5);
    EXPECT_EQ(report.edges, whole.edges);
    EXPECT_EQ(report.accuracy, whole.accuracy);
    if (task != Task::kTowers) {
      EXPECT_TRUE(torch::allclose(report.density, whole.density));
    }
    for (const auto& [name, gradient] : expected) {
      EXPECT_TRUE(torch::allclose(gradients.at(name), gradient, 1e-4, 1e-6))
          << name << " with micro-batch " << micro << ": " << (gradients.at(name) - gradient).abs().max();
    }
  }
}
// A micro-batch drops the padding that only other items needed; gradients stay those of the whole batch.
TEST(Trimming, TrimmedMicroBatchesEqualTheWholeBatch) {
  const auto model = make_model(Task::kTowers, sbm_factory());
  Batch batch = make_batch(Task::kTowers);
  std::map<int64_t, std::vector<at::Tensor>> gradients;
  for (const int64_t trim : {0, 4}) {
    batch.trim_multiple = trim;
    model->zero_grad();
    accumulate_gradients(
        *model, batch, {.micro_batch = 2, .density_weight = 0.3, .count_padding = false, .device = at::kCPU},
        {.seed = 3, .step = 8});
    for (const auto& item : model->named_parameters()) {
      // Positions beyond a trimmed micro-batch have no gradient either way.
      gradients[trim].push_back(item.value().grad().defined() ? item.value().grad().clone() : at::Tensor());
    }
  }
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    ASSERT_EQ(gradients[0][i].defined(), gradients[4][i].defined());
    if (gradients[0][i].defined()) {
      EXPECT_TRUE(at::allclose(gradients[0][i], gradients[4][i], 1e-4, 1e-6)) << i;
    }
  }
  const Batch part = slice_items(batch, 3, 2);  // lengths 1 and 5, 4 and 4
  EXPECT_EQ(part.towers[0].tokens.size(1), 8);
  EXPECT_EQ(part.towers[1].tokens.size(1), 4);
  batch.trim_multiple = 0;
  EXPECT_EQ(slice_items(batch, 3, 2).towers[0].tokens.size(1), 10);
}

INSTANTIATE_TEST_SUITE_P(Tasks, Accumulation,
                         testing::Combine(testing::Values(Task::kSequence, Task::kTokens, Task::kTowers),
                                          testing::Bool()));

TEST(Step, PaddingTokensHaveNoLabel) {
  const auto model = make_model(Task::kTokens, {});
  Batch batch = make_batch(Task::kTokens);
  const StepReport first = accumulate_gradients(*model, batch, {}, {});
  batch.labels.masked_fill_(batch.towers[0].mask.logical_not(), 2);
  const StepReport second = accumulate_gradients(*model, batch, {}, {});
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_EQ(first.accuracy, second.accuracy);
}

std::string error_of(Model& model, const Batch& batch) {
  try {
    accumulate_gradients(model, batch, {}, {.seed = 1, .step = 41});
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(NonFinite, AParameterIsNamed) {
  const auto model = make_model(Task::kSequence, sbm_factory());
  {
    torch::NoGradGuard no_grad;
    model->named_parameters()["encoder.layers.1.linear1.weight"][2][3] =
        std::numeric_limits<double>::quiet_NaN();
  }
  EXPECT_THAT(
      error_of(*model, make_batch(Task::kSequence)),
      testing::AllOf(testing::HasSubstr("step 41"),
                     testing::HasSubstr("parameter encoder.layers.1.linear1.weight (1 of 384 values)")));
}

// All parameters finite, but their product overflows: the layer whose state overflows first is named.
TEST(NonFinite, AStateIsNamed) {
  const auto model = make_model(Task::kSequence, {});
  {
    torch::NoGradGuard no_grad;
    model->named_parameters()["encoder.layers.1.linear1.weight"].fill_(3e38);
    model->named_parameters()["encoder.layers.1.linear1.bias"].fill_(3e38);
  }
  EXPECT_THAT(error_of(*model, make_batch(Task::kSequence)),
              testing::HasSubstr("state encoder.layers.1.mlp"));
}

TEST(NonFinite, AGradientIsNamed) {
  const auto model = make_model(Task::kSequence, {});
  const Batch batch = make_batch(Task::kSequence);
  accumulate_gradients(*model, batch, {}, {});
  {
    torch::NoGradGuard no_grad;
    model->named_parameters()["head.linear1.bias"].mutable_grad()[0] =
        std::numeric_limits<double>::infinity();
  }
  const double norm = Optimizer(*model).gradient_norm().item<double>();
  try {
    check_gradient_norm(*model, norm, batch, {}, {.seed = 0, .step = 9});
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(
        error.what_without_backtrace(),
        testing::AllOf(testing::HasSubstr("step 9"), testing::HasSubstr("gradient of head.linear1.bias")));
  }
}

// The item whose states overflow is in the second of three micro-batches; the others are sound.
TEST(NonFinite, AllPassesOfTheStepAreRepeated) {
  torch::manual_seed(5);
  ClassifierOptions options = tiny_options();
  options.encoder.style.norm = false;  // it would bring the large values back
  SequenceClassifier model(options);
  Batch batch = make_batch(Task::kSequence);
  batch.towers[0].tokens.masked_fill_(batch.towers[0].tokens == 10, 1);
  batch.towers[0].tokens[2][0] = 10;
  {
    torch::NoGradGuard no_grad;
    model->named_parameters()["encoder.token_embedding.weight"][10].fill_(3e38);
  }
  try {
    check_gradient_norm(*model, std::numeric_limits<double>::quiet_NaN(), batch, {.micro_batch = 2},
                        {.seed = 0, .step = 9});
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), testing::HasSubstr("is state encoder.layers.0"));
  }
}

// Fails on the micro-batch that begins with item 2, and keeps what every pass drew.
struct FailingClassifier : SequenceClassifierImpl {
  using SequenceClassifierImpl::SequenceClassifierImpl;
  ModelOutput forward(const ModelInput& input) override {
    first_items.push_back(input.random.first_item);
    dropout.push_back(torch::rand({1}).item<double>());
    ModelOutput output = SequenceClassifierImpl::forward(input);
    edges.push_back(output.edge_count.item<int64_t>());
    if (input.random.first_item == 2) output.logits = output.logits / 0.0;
    if (input.watch) input.watch("logits", output.logits);
    return output;
  }
  std::vector<int64_t> first_items, edges;
  std::vector<double> dropout;
};

TEST(NonFinite, TheFailedPassIsRepeatedAsItWas) {
  torch::manual_seed(5);
  FailingClassifier model(tiny_options(sbm_factory()));
  const Batch batch = make_batch(Task::kSequence);
  try {
    accumulate_gradients(model, batch, {.micro_batch = 2}, {.seed = 1, .step = 41});
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), testing::HasSubstr("state logits"));
  }
  // The losses are read when the step's passes are over; then the failed one again.
  EXPECT_THAT(model.first_items, testing::ElementsAre(0, 2, 4, 2));
  EXPECT_NE(model.dropout[0], model.dropout[1]);
  EXPECT_EQ(model.dropout[1], model.dropout[3]);
  EXPECT_EQ(model.edges[1], model.edges[3]);
}

}  // namespace
}  // namespace edgewise::train
