// Language models over the pieces of a tokeniser: data, a run, bits per byte, and text from the run alone.
#include <edgewise/data/examples/import_plain_text.h>
#include <edgewise/data/examples/token_text.h>
#include <edgewise/models/generator.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numbers>

#include "kit/message_of.h"
#include "kit/scratch_folder.h"

namespace edgewise::train {
namespace {

using kit::ScratchFolder;
using testing::HasSubstr;

std::string text_data(const ScratchFolder& scratch) {
  std::string text;
  for (int n = 0; n < 400; ++n) text += "the man sees the old dog and the dog sees the man\n";
  scratch.write("text.txt", text);
  data::PlainTextOptions options;
  options.train = {scratch / "text.txt"};
  options.vocabulary = 300;
  const data::ImportedText made = data::import_plain_text(options);
  const std::string folder = scratch / "data";
  data::save_token_examples(folder, made.examples, made.reader);
  return folder;
}

Recipe subword_recipe(const std::string& data, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), "data.path=" + data);
  return parse_recipe(R"(
[data]
name = "next_tokens"
length = 16
[model]
layers = 1
dim = 32
heads = 2
hidden = 32
dropout = 0.0
attention_dropout = 0.0
[train]
steps = 60
batch = 8
learning_rate = 5e-3
schedule = "constant"
eval_every = 20
threads = 1
)",
                      "subwords", overrides);
}

TEST(SubwordText, PiecesFollowOneAnother) {
  const ScratchFolder scratch;
  const std::string folder = text_data(scratch);
  const data::TokenText text(folder, 16);
  const std::vector<int64_t> indices = {0, 1};
  const Batch batch = text.batch(data::Split::kTrain, indices);
  EXPECT_FALSE(batch.towers[0].mask.defined());
  EXPECT_TRUE(torch::equal(batch.labels.slice(1, 0, 15), batch.towers[0].tokens.slice(1, 1)));
  EXPECT_EQ(batch.labels[0][15].item<int64_t>(), batch.towers[0].tokens[1][0].item<int64_t>());
  const auto* const ids = batch.towers[0].tokens.const_data_ptr<int64_t>();
  const std::vector<int32_t> first(ids, ids + 16);
  EXPECT_TRUE(std::string("the man sees the old dog and the dog sees the man\nthe man sees the old")
                  .starts_with(text.reader()->tokenizer().decode(first)));
  EXPECT_THAT(kit::message_of([&] { data::TokenText(folder, 1'000'000); }), HasSubstr("smaller data.length"));
  EXPECT_THAT(kit::message_of([&] { data::TokenText(scratch / "none", 16); }),
              HasSubstr("edgewise data text"));
}

TEST(SubwordText, ARunLearnsAndIsToldInBitsPerByte) {
  const ScratchFolder scratch;
  const std::string data = text_data(scratch);
  for (const std::string positions : {"learned", "rotary", "sinusoidal"}) {
    const Recipe recipe = subword_recipe(data, {"model.positions=" + positions, "model.embedding_std=0.5"});
    const tasks::TaskPtr task = open_task(recipe);
    TrainerOptions options;
    options.run_folder = scratch / ("run_" + positions);
    const RunSummary summary = Trainer(recipe, task, options).run();
    ASSERT_TRUE(summary.test);
    EXPECT_EQ(summary.test->metric->name, "token_loss");
    EXPECT_LT(summary.test->loss, task->baselines(data::Split::kTest).front().value / 2);
    const auto& text = dynamic_cast<const data::TokenText&>(task->data());
    ASSERT_EQ(summary.test->figures.size(), 1u);
    EXPECT_EQ(summary.test->figures[0].name, "bits_per_byte");
    EXPECT_NEAR(summary.test->figures[0].value,
                summary.test->loss / std::numbers::ln2 / text.bytes_per_token(data::Split::kTest), 1e-12);
    EXPECT_GT(text.bytes_per_token(data::Split::kTest), 1.5);

    // Without its data, and with a cache, it goes on with a text as without.
    LanguageModel model =
        load_language_model(recipe, (options.run_folder / "checkpoints/best.safetensors").string());
    EXPECT_EQ(model->vocabulary(), task->data().vocabulary());
    EXPECT_FALSE(model->bytes.defined());
    std::vector<std::vector<int64_t>> made(2);
    for (const GeneratorCache cache : {GeneratorCache::kWhereExact, GeneratorCache::kNever}) {
      Generator generator(model, {.greedy = true}, 0, evaluation_stream(0, 0, 0), cache);
      generator.read({10, 11, 12});
      for (int n = 0; n < 10; ++n) made[cache == GeneratorCache::kNever].push_back(generator.next());
    }
    EXPECT_EQ(made[0], made[1]);
  }
}

TEST(SubwordText, OtherTokensAreRefused) {
  const ScratchFolder scratch;
  const Recipe recipe = subword_recipe(text_data(scratch));
  const tasks::TaskPtr task = open_task(recipe);
  EXPECT_THAT(kit::message_of([&] {
                task->check_model(*build_language_model(recipe, {'a', 'b'}));
              }),
              HasSubstr("the tokeniser of the run"));
  task->check_model(*build_language_model(recipe, {}, task->data().vocabulary()));
  EXPECT_THAT(kit::message_of([&] { build_language_model(recipe, {}, 0); }), HasSubstr("a number of tokens"));
}

}  // namespace
}  // namespace edgewise::train
