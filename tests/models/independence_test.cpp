// An item's result depends neither on its batch mates nor on how far the batch is padded.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/attention/linear_attention.h>
#include <edgewise/attention/linformer.h>
#include <edgewise/attention/nystromformer.h>
#include <edgewise/attention/performer.h>
#include <edgewise/edges/bucket_edges.h>
#include <edgewise/edges/patterns.h>
#include <edgewise/models/classifier.h>

#include "models/tiny_model.h"

namespace edgewise {
namespace {

using namespace testing_kit;

struct Case {
  const char* name;
  EdgeSourceFactory edges;
  AttentionMethodFactory method = {};
  bool shared_qk = false;
};
void PrintTo(const Case& c, std::ostream* stream) {
  *stream << c.name;
}

class Independence : public testing::TestWithParam<Case> {};

// As tiny_model, with the attention of the case.
template <typename Model>
Model case_model(const Case& c) {
  ClassifierOptions options = tiny_options(c.edges);
  options.encoder.method = c.method;
  options.encoder.shared_qk = c.shared_qk;
  torch::manual_seed(5);
  Model model(options);
  model->eval();
  return model;
}

bool close(const at::Tensor& a, const at::Tensor& b) {
  return torch::allclose(a, b, 1e-5, 1e-5);
}

ModelInput input_of(const at::Tensor& tokens, const at::Tensor& mask, int64_t first_item = 0) {
  return {.batch = {.towers = {{.tokens = tokens, .mask = mask}}},
          .random = {.seed = 4, .step = 0, .layer = 0, .first_item = first_item}};
}

// Item 1 of the batch stays in its place (its random numbers follow its place); everything around it changes.
TEST_P(Independence, OfBatchMates) {
  auto model = case_model<SequenceClassifier>(GetParam());
  const at::Tensor mine = random_tokens(1, 12, 1), mask = length_mask({9}, 12);
  const auto logits = [&](uint64_t seed, std::vector<int64_t> lengths) {
    const at::Tensor mates = random_tokens(2, 12, seed), mates_mask = length_mask(lengths, 12);
    return model
        ->forward(input_of(torch::cat({mates.slice(0, 0, 1), mine, mates.slice(0, 1)}),
                           torch::cat({mates_mask.slice(0, 0, 1), mask, mates_mask.slice(0, 1)})))
        .logits[1];
  };
  const at::Tensor reference = logits(10, {12, 12});
  EXPECT_TRUE(close(reference, logits(11, {3, 7})));
  EXPECT_TRUE(close(reference, logits(12, {0, 1})));
}

// Masked tokens in between may as well not be there, if the rest say where they stand.
TEST(Positions, SayWhereTheTokensStandThatAreLeft) {
  const at::Tensor tokens = random_tokens(2, 20, 3);
  const at::Tensor kept = torch::tensor({{1, 4, 5, 11, 17}, {0, 2, 3, 8, 19}}, torch::kLong);  // [B, 5]
  const at::Tensor mask = torch::zeros({2, 20}, torch::kBool).scatter(1, kept, true);
  for (const bool edges : {false, true}) {
    for (const Pooling pooling : {Pooling::kMean, Pooling::kMeanPadded}) {
      ClassifierOptions options = tiny_options();
      if (edges) options.encoder.edges = [](int64_t) { return std::make_shared<FullEdges>(); };
      options.pooling = pooling;
      torch::manual_seed(5);
      SequenceClassifier model(options);
      model->eval();
      const at::Tensor masked =
          model->forward({.batch = {.towers = {{.tokens = tokens, .mask = mask}}}}).logits;
      ModelInput input{.batch = {.towers = {{.tokens = tokens.gather(1, kept), .positions = kept}}}};
      input.batch.sequence_length = 20;
      EXPECT_TRUE(close(model->forward(input).logits, masked)) << edges << to_string(pooling);
      // And with padding behind.
      const at::Tensor none = torch::zeros({2, 3}, torch::kLong);
      input.batch.towers = {{.tokens = torch::cat({tokens.gather(1, kept), none}, 1),
                             .mask = length_mask({5, 5}, 8),
                             .positions = torch::cat({kept, none}, 1)}};
      EXPECT_TRUE(close(model->forward(input).logits, masked)) << edges << to_string(pooling);
      input.batch.towers[0].positions = at::Tensor();
      EXPECT_FALSE(close(model->forward(input).logits, masked)) << "positions change nothing";
    }
  }
}

// The same item alone, told where it stands in the whole batch: what gradient accumulation relies on.
TEST_P(Independence, OfMicroBatching) {
  auto model = case_model<SequenceClassifier>(GetParam());
  const at::Tensor tokens = random_tokens(4, 12, 2), mask = length_mask({12, 9, 4, 7}, 12);
  const ModelOutput whole = model->forward(input_of(tokens, mask));
  for (int64_t item = 0; item < 4; ++item) {
    const ModelOutput alone =
        model->forward(input_of(tokens.slice(0, item, item + 1), mask.slice(0, item, item + 1), item));
    EXPECT_TRUE(close(whole.logits[item], alone.logits[0])) << "item " << item;
  }
}

TEST_P(Independence, OfPadding) {
  const at::Tensor tokens = random_tokens(2, 12, 3), mask = length_mask({12, 9}, 12);
  const at::Tensor longer = torch::cat({tokens, random_tokens(2, 15, 4)}, 1),
                   longer_mask = length_mask({12, 9}, 27);
  const auto check = [&](auto model, int64_t kept) {
    const at::Tensor a = model->forward(input_of(tokens, mask)).logits,
                     b = model->forward(input_of(longer, longer_mask)).logits;
    EXPECT_TRUE(close(a, kept ? b.slice(1, 0, kept) : b)) << a << b;
  };
  check(case_model<SequenceClassifier>(GetParam()), 0);
  check(case_model<TokenClassifier>(GetParam()), 12);
}

TEST_P(Independence, AnItemOfPaddingOnlyGivesNoNan) {
  auto model = case_model<SequenceClassifier>(GetParam());
  model->train();
  const ModelOutput output = model->forward(input_of(random_tokens(2, 12, 3), length_mask({0, 5}, 12)));
  EXPECT_TRUE(output.logits.isfinite().all().item<bool>());
  output.logits.sum().backward();
  for (const auto& item : model->named_parameters()) {
    if (!item.value().grad().defined()) continue;
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sources, Independence,
    testing::Values(
        Case{"dense", {}}, Case{"full", [](int64_t) { return std::make_shared<FullEdges>(); }},
        Case{"window", [](int64_t) { return std::make_shared<WindowEdges>(2); }}, Case{"sbm", sbm_factory()},
        Case{"window_squares", [](int64_t) { return std::make_shared<WindowEdges>(2, 16); }},
        Case{"sbm_squares",
             [](int64_t) { return SbmEdges(SbmEdgesOptions(2, 8, SbmPreset::kEdgewise, 16)).ptr(); }},
        Case{"linear", {}, [](int64_t) { return LinearAttention().ptr(); }},
        Case{"performer", {}, [](int64_t) { return PerformerAttention(PerformerAttentionOptions(8)).ptr(); }},
        Case{"linformer",
             {},
             [](int64_t) { return LinformerAttention(LinformerAttentionOptions(2, 32)).ptr(); }},
        Case{"nystromformer",
             {},
             [](int64_t) {
               NystromAttentionOptions options(2);
               options.landmarks = 4;
               return NystromAttention(options).ptr();
             }},
        Case{"reformer",
             [](int64_t) { return BucketEdges(BucketEdgesOptions{.rounds = 2, .chunk = 4}).ptr(); },
             {},
             true}));

TEST(Padding, ChangesThePublishedPooling) {
  ClassifierOptions options = tiny_options();
  options.pooling = Pooling::kMeanPadded;
  torch::manual_seed(5);
  SequenceClassifier model(options);
  model->eval();
  const at::Tensor states = torch::randn({1, 4, 2});
  const at::Tensor mask = length_mask({2}, 4);
  EXPECT_TRUE(
      torch::allclose(pool(states, mask, Pooling::kMeanPadded) * 2, pool(states, mask, Pooling::kMean)));
  EXPECT_TRUE(torch::allclose(pool(states, mask, Pooling::kMean), states.slice(1, 0, 2).mean(1)));
}

}  // namespace
}  // namespace edgewise
