// Masked text: pieces without padding, the law of what is hidden, other places in every pass, and the loss of
// hidden tokens alone.
#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/examples/masked_text.h>
#include <edgewise/data/train_tokenizer.h>
#include <edgewise/models/masked_language_model.h>
#include <edgewise/tasks/masked_tokens.h>

#include <torch/torch.h>

#include <map>
#include <numeric>
#include <set>

#include "data/examples/examples_kit.h"

namespace edgewise::data {
namespace {

using testing::HasSubstr;

TextReader reader_with(std::shared_ptr<const Tokenizer> tokenizer) {
  return {std::move(tokenizer), {.answer = AnswerKind::kNone}};
}

// Tokens 5, 6, ... of a byte-level tokeniser of 261 ids, `count` a split.
MaskedText text_of(int64_t count, const MaskedTextOptions& options) {
  ByteLevelBpeTrainer trainer;
  trainer.add("ab");
  auto tokenizer = std::make_shared<ByteLevelBpe>(trainer.train({.vocabulary = 261}));
  TokenExamples examples;
  examples.source = "numbers";
  for (TokenExamples::Part& part : examples.parts) {
    std::vector<int32_t> ids;
    for (int64_t n = 0; n < count; ++n) ids.push_back(static_cast<int32_t>(5 + n % 256));
    part.add(ids, 1);
  }
  return {reader_with(tokenizer), examples, options};
}

std::vector<int64_t> first(int64_t count, int64_t from = 0) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), from);
  return indices;
}

std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

TEST(MaskedText, PiecesArePackedBetweenMarks) {
  const MaskedText text = text_of(29, {.length = 12});
  EXPECT_EQ(text.size(Split::kTrain), 2);  // 10 tokens each; the rest is no piece
  EXPECT_EQ(text.piece(Split::kTrain, 1),
            (std::vector<int32_t>{0, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 2}));
  TokenExamples bytes;
  for (TokenExamples::Part& part : bytes.parts) part.add(std::vector<int32_t>(20, 9), 1);
  const MaskedText without_marks(reader_with(std::make_shared<BytesTokenizer>()), bytes, {.length = 10});
  EXPECT_EQ(without_marks.size(Split::kTest), 2);
  EXPECT_EQ(without_marks.piece(Split::kTest, 1), std::vector<int32_t>(10, 9));
  EXPECT_THAT(complaint([] { text_of(9, {.length = 12}); }),
              HasSubstr("expected at least 10 tokens, one piece, in the train part of numbers; it has 9"));
}

TEST(MaskedText, WhatIsHiddenIsToldAndTheRestIsThere) {
  const MaskedText text = text_of(5100, {.length = 512});
  const Batch batch = text.batch(Split::kTrain, first(10));
  const at::Tensor &tokens = batch.towers[0].tokens, &places = batch.more.at(MaskedText::kPlaces);
  EXPECT_FALSE(batch.towers[0].mask.defined()) << "nothing is padded";
  EXPECT_EQ(places.sizes(), batch.labels.sizes());
  EXPECT_EQ(places.size(1) % 16, 0);
  for (int64_t item = 0; item < 10; ++item) {
    std::vector<int32_t> piece = text.piece(Split::kTrain, item);
    std::vector<int64_t> restored = values(tokens[item]);
    int64_t before = 0;
    bool ended = false;
    for (int64_t n = 0; n < places.size(1); ++n) {
      const int64_t label = batch.labels[item][n].item<int64_t>(), place = places[item][n].item<int64_t>();
      ended = ended || label == -1;
      ASSERT_EQ(label == -1, ended) << "padding stands last";
      if (ended) continue;
      ASSERT_GT(place, before) << "in order, and never the mark at 0";
      ASSERT_LT(place, 511) << "nor the one at the end";
      before = place;
      restored[static_cast<size_t>(place)] = label;
    }
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), restored.begin()));
  }
}

// 15 %, of which 80 % are masked, 10 % drawn and 10 % kept: within five standard deviations.
TEST(MaskedText, TheLawIsRobertas) {
  const MaskedText text = text_of(102000, {.length = 512});
  double all = 0, hidden = 0, masked = 0, kept = 0;
  std::map<int64_t, int64_t> drawn;
  const Batch batch = text.batch(Split::kTrain, first(200));
  for (int64_t item = 0; item < batch.size(); ++item) {
    all += 510;
    for (int64_t n = 0; n < batch.labels.size(1); ++n) {
      const int64_t label = batch.labels[item][n].item<int64_t>();
      if (label < 0) continue;
      const int64_t read =
          batch.towers[0].tokens[item][batch.more.at("places")[item][n].item<int64_t>()].item<int64_t>();
      hidden += 1;
      masked += read == 4;
      kept += read == label;
      if (read != 4 && read != label) ++drawn[read];
    }
  }
  const auto expect_share = [](double found, double of, double share) {
    EXPECT_NEAR(found / of, share, 5 * std::sqrt(share * (1 - share) / of));
  };
  expect_share(hidden, all, 0.15);
  // A drawn token may be the mask, or the one that stood there.
  expect_share(masked, hidden, 0.8 + 0.1 / 261);
  expect_share(kept, hidden, 0.1 + 0.1 / 261);
  EXPECT_GT(drawn.size(), 240u) << "from the whole vocabulary";
  EXPECT_TRUE(drawn.contains(0)) << "marks among it";
}

TEST(MaskedText, EveryPassHidesOthersAndTheSameIndexTheSame) {
  const auto text = std::make_shared<MaskedText>(text_of(5100, {.length = 512}));
  const int64_t size = text->size(Split::kTrain);
  const Batch once = text->batch(Split::kTrain, first(1)), again = text->batch(Split::kTrain, first(1));
  EXPECT_TRUE(once.towers[0].tokens.equal(again.towers[0].tokens));
  EXPECT_FALSE(once.towers[0].tokens.equal(text->batch(Split::kTrain, first(1, size)).towers[0].tokens));
  EXPECT_FALSE(once.towers[0].tokens.equal(text->batch(Split::kTest, first(1)).towers[0].tokens));
  EXPECT_THAT(complaint([&] { text->batch(Split::kTest, first(1, size)); }),
              HasSubstr("expected an index from 0 to 9"));

  const tasks::MaskedTokens task(text);
  const auto order = task.training_order(4, 3), other = task.training_order(4, 4);
  std::multiset<int64_t> pieces;
  std::set<int64_t> indices;
  for (int64_t step = 0; step < 5; ++step)  // two passes over ten pieces
    for (const int64_t index : order->indices(step)) {
      pieces.insert(index % size);
      indices.insert(index);
    }
  for (int64_t piece = 0; piece < size; ++piece) EXPECT_EQ(pieces.count(piece), 2u);
  EXPECT_EQ(indices.size(), 20u) << "another index in each pass";
  const auto same = task.training_order(4, 3);
  EXPECT_EQ(same->indices(3), order->indices(3)) << "a resumed run goes on alike";
  for (const int64_t index : other->indices(0)) EXPECT_FALSE(indices.contains(index));
}

TEST(MaskedText, FrequenciesAloneAreTheBaseline) {
  const MaskedText text = text_of(2560, {.length = 12});  // 256 tokens, all as frequent
  const auto baselines = text.baselines(Split::kTest);
  ASSERT_EQ(baselines.size(), 1u);
  EXPECT_NEAR(baselines[0].value, std::log((2560.0 + 261) / 11), 1e-9);
}

// Against the plain computation over all places.
TEST(MaskedLanguageModel, LogitsAndLossAreThoseOfTheHiddenPlaces) {
  torch::manual_seed(1);
  const auto text = std::make_shared<MaskedText>(text_of(300, {.length = 24}));
  const tasks::MaskedTokens task(text);
  tasks::ModelPlan plan;
  plan.encoder.layers = 1;
  plan.encoder.dim = 16;
  plan.encoder.hidden = 32;
  const auto made = std::dynamic_pointer_cast<MaskedLanguageModelImpl>(task.make_model(plan));
  ASSERT_TRUE(made);
  made->eval();
  const Batch batch = text->batch(Split::kValidation, first(3));
  const ModelOutput output = made->forward({.batch = batch});
  EXPECT_EQ(output.logits.sizes(), (std::vector<int64_t>{3, batch.labels.size(1), 261}));
  EncoderInput tower;
  tower.tower = batch.towers[0];
  const at::Tensor states = made->encoder->forward(tower).states;
  const auto& head = made->head;
  const at::Tensor x =
      torch::layer_norm(torch::gelu(torch::linear(states, head->dense->weight, head->dense->bias)), {16},
                        head->norm->weight, head->norm->bias);
  const at::Tensor all = at::matmul(x, made->encoder->token_embedding->weight.t()) + head->bias;  // [B, N, V]
  double loss = 0;
  int64_t targets = 0, correct = 0;
  for (int64_t item = 0; item < 3; ++item)
    for (int64_t n = 0; n < batch.labels.size(1); ++n) {
      const int64_t label = batch.labels[item][n].item<int64_t>();
      if (label < 0) continue;
      const at::Tensor row = all[item][batch.more.at("places")[item][n].item<int64_t>()];
      EXPECT_TRUE(row.allclose(output.logits[item][n], 1e-4, 1e-5));
      loss -= row.log_softmax(0)[label].item<double>();
      correct += row.argmax().item<int64_t>() == label;
      ++targets;
    }
  const tasks::Score score = task.objective().score(output.logits, batch);
  EXPECT_EQ(task.objective().count_targets(batch), targets);
  EXPECT_NEAR(score.loss.item<double>(), loss, 1e-3);
  EXPECT_EQ(score.correct.item<int64_t>(), correct);
  EXPECT_EQ(task.metric().of(1.25, 0.5), 1.25);
  Batch without = batch;
  without.more.clear();
  EXPECT_THAT(complaint([&] { made->forward({.batch = without}); }), HasSubstr("without places"));
}

}  // namespace
}  // namespace edgewise::data
