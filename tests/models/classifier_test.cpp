// The classifiers' own parts: heads, towers, kept edges, watchers, and full edges against dense attention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/edges/patterns.h>
#include <edgewise/models/classifier.h>

#include "models/tiny_model.h"

namespace edgewise {
namespace {

using namespace testing_kit;

EdgeSourceFactory full() {
  return [](int64_t) { return std::make_shared<FullEdges>(); };
}

ModelInput input(int64_t towers) {
  ModelInput result;
  result.random.seed = 3;
  for (int64_t tower = 0; tower < towers; ++tower) {
    result.batch.towers.push_back({.tokens = random_tokens(3, 12, static_cast<uint64_t>(tower)),
                                   .mask = length_mask({12, 7, 3 + tower}, 12)});
  }
  return result;
}

TEST(Classifiers, FullEdgesEqualDenseAttention) {
  EXPECT_TRUE(torch::allclose(tiny_model<SequenceClassifier>()->forward(input(1)).logits,
                              tiny_model<SequenceClassifier>(full())->forward(input(1)).logits, 1e-5, 1e-5));
  EXPECT_TRUE(torch::allclose(tiny_model<TokenClassifier>()->forward(input(1)).logits,
                              tiny_model<TokenClassifier>(full())->forward(input(1)).logits, 1e-5, 1e-5));
  EXPECT_TRUE(torch::allclose(tiny_model<TwoTowerClassifier>()->forward(input(2)).logits,
                              tiny_model<TwoTowerClassifier>(full())->forward(input(2)).logits, 1e-5, 1e-5));
}

TEST(Classifiers, ShapesOfTheLogits) {
  EXPECT_EQ(tiny_model<SequenceClassifier>()->forward(input(1)).logits.sizes(), (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(tiny_model<TokenClassifier>()->forward(input(1)).logits.sizes(),
            (std::vector<int64_t>{3, 12, 3}));
  EXPECT_EQ(tiny_model<TwoTowerClassifier>()->forward(input(2)).logits.sizes(), (std::vector<int64_t>{3, 3}));
}

TEST(TwoTowers, ReadBothAndDrawApart) {
  auto model = tiny_model<TwoTowerClassifier>(sbm_factory());
  ModelInput same = input(1);
  same.batch.towers.push_back(same.batch.towers[0]);
  same.keep_edges = true;
  const ModelOutput output = model->forward(same);
  ASSERT_EQ(output.edges.size(), 4u);  // two towers x two layers
  // The same tokens in both towers still draw different edges: the towers have layer numbers of their own.
  EXPECT_FALSE(torch::equal(output.edges[0].to_mask(), output.edges[2].to_mask()));
  EXPECT_EQ(output.densities.sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(output.tower_penalties.size(), 2u);
  EXPECT_NEAR(output.penalty.item<double>(),
              (output.tower_penalties[0].item<double>() + output.tower_penalties[1].item<double>()) / 2,
              1e-6);
}

TEST(Classifiers, MasksMayBeLeftOut) {
  auto model = tiny_model<SequenceClassifier>(full());
  ModelInput masked = input(1), bare = input(1);
  masked.batch.towers[0].mask = torch::ones({3, 12}, torch::kBool);
  bare.batch.towers[0].mask = at::Tensor();
  EXPECT_TRUE(torch::allclose(model->forward(masked).logits, model->forward(bare).logits, 1e-5, 1e-6));
}

TEST(Classifiers, TokenDropoutReadsTokensAsZero) {
  ClassifierOptions options = tiny_options();
  options.encoder.dropout = options.encoder.attention_dropout = 0;
  options.encoder.token_dropout = 0.4;
  torch::manual_seed(5);
  SequenceClassifier model(options);
  const ModelInput whole = input(1);
  torch::manual_seed(9);
  const at::Tensor dropped = torch::rand({3, 12}) < 0.4;
  EXPECT_GT(dropped.sum().item<int64_t>(), 4);
  ModelInput less = whole;
  less.batch.towers[0].tokens = whole.batch.towers[0].tokens.masked_fill(dropped, 0);
  torch::manual_seed(9);
  const at::Tensor trained = model->forward(whole).logits;
  model->eval();
  EXPECT_TRUE(torch::equal(trained, model->forward(less).logits));
  EXPECT_FALSE(
      torch::equal(trained, model->forward(whole).logits));  // nothing is dropped outside of training
  options.encoder.token_dropout = 1;
  EXPECT_THAT([&] { SequenceClassifier refused(options); },
              testing::ThrowsMessage<c10::Error>(testing::HasSubstr("token_dropout in [0, 1)")));
}

TEST(Classifiers, TheSameStreamGivesTheSameEdges) {
  auto model = tiny_model<SequenceClassifier>(sbm_factory());
  const at::Tensor first = model->forward(input(1)).logits, second = model->forward(input(1)).logits;
  EXPECT_TRUE(torch::equal(first, second));
  ModelInput other = input(1);
  other.random.step = 1;
  EXPECT_FALSE(torch::equal(first, model->forward(other).logits));
}

TEST(Classifiers, WatchersSeeEveryStateInOrder) {
  auto model = tiny_model<SequenceClassifier>(full());
  ModelInput watched = input(1);
  std::vector<std::string> names;
  watched.watch = [&](const std::string& name, const at::Tensor&) { names.push_back(name); };
  model->forward(watched);
  EXPECT_THAT(names, testing::ElementsAre("encoder.embedding", "encoder.layers.0.self_attn",
                                          "encoder.layers.0.mlp", "encoder.layers.1.self_attn",
                                          "encoder.layers.1.mlp", "encoder.norm", "head"));
}

TEST(Classifiers, MistakesAreExplained) {
  auto model = tiny_model<SequenceClassifier>();
  EXPECT_THROW(model->forward(input(2)), c10::ValueError);
  ModelInput large = input(1);
  large.batch.towers[0].tokens[0][0] = 11;
  EXPECT_THROW(model->forward(large), c10::IndexError);
  ModelInput longer = input(1);
  longer.batch.towers = {{.tokens = random_tokens(3, 33, 1)}};
  try {
    model->forward(longer);
    FAIL();
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what_without_backtrace(), testing::HasSubstr("at most max_length = 32 tokens; got 33"));
  }
}

}  // namespace
}  // namespace edgewise
