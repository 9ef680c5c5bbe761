// The registry of tasks: what it lists, what it refuses, and that every task has what it takes to be learned.
// (A task of a program's own is trained in examples/node_labels.cpp, in a process of its own: tasks stay.)
#include <edgewise/train/task_kinds.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/data/associative_recall.h>
#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/characters.h>
#include <edgewise/data/examples/labelled_text.h>
#include <edgewise/data/examples/masked_text.h>
#include <edgewise/data/examples/token_text.h>
#include <edgewise/data/examples/translation_pairs.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/model_cost.h>
#include <edgewise/train/pass_graphs.h>

#include "kit/message_of.h"
#include "train/recipe/recipe_fields.h"

namespace edgewise::train {
namespace {

using kit::message_of;
using testing::HasSubstr;

DatasetPtr some_text() {
  std::vector<uint8_t> text;
  for (size_t n = 0; n < 2000; ++n) text.push_back(static_cast<uint8_t>('a' + n % 7));
  return std::make_shared<data::Characters>("letters", text, 16);
}

// Small data of the right form.
DatasetPtr data_for(const TaskKind& kind, const Recipe& recipe) {
  const auto reader = [](data::AnswerKind answer) {
    return data::TextReader(std::make_shared<data::BytesTokenizer>(),
                            {.answer = answer, .classes = {"no", "yes"}, .max_length = 16});
  };
  data::TokenExamples texts;
  if (kind.name == "labelled_text") {
    for (int32_t n = 0; n < 8; ++n) {
      texts.part(data::Split::kTrain).add(std::vector<int32_t>(static_cast<size_t>(n + 1), n + 1), n);
      texts.part(data::Split::kTrain).answers.push_back(n % 2);
    }
    return std::make_shared<data::LabelledText>(reader(data::AnswerKind::kClass), texts);
  }
  if (kind.name == "masked_text") {
    for (data::TokenExamples::Part& part : texts.parts) part.add(std::vector<int32_t>(200, 7), 1);
    return std::make_shared<data::MaskedText>(reader(data::AnswerKind::kNone), texts,
                                              data::MaskedTextOptions{.length = 16});
  }
  if (kind.name == "next_tokens") {
    for (data::TokenExamples::Part& part : texts.parts) part.add(std::vector<int32_t>(200, 7), 1);
    return std::make_shared<data::TokenText>(reader(data::AnswerKind::kNone), texts, 16);
  }
  if (kind.has_decoder) {
    for (int32_t n = 0; n < 16; ++n)  // eight pairs
      texts.part(data::Split::kTrain).add(std::vector<int32_t>(static_cast<size_t>(n % 5 + 1), n + 1), n);
    data::TextReader pairs(std::make_shared<data::BytesTokenizer>(),
                           {.answer = data::AnswerKind::kNone, .max_length = 16, .metric = "bleu-13a"});
    return std::make_shared<data::TranslationPairs>(std::move(pairs), texts, data::TranslationSets());
  }
  if (kind.is_causal) return some_text();
  if (kind.noise) return noise_dataset(recipe, 16);
  return std::make_shared<data::AssociativeRecall>(data::AssociativeRecallOptions{.length = 16});
}

TEST(TaskKinds, EveryTaskIsCompleteAndItsModelAnswersItsBatches) {
  for (const std::string& name : task_names()) {
    SCOPED_TRACE(name);
    const TaskKind& kind = task_kind(name);
    EXPECT_EQ(kind.name, name);
    EXPECT_FALSE(kind.meaning.empty());
    ASSERT_TRUE(kind.open && (kind.task || kind.task_of));
    for (const std::string& key : kind.keys) EXPECT_NE(find_recipe_field("data", key), nullptr) << key;
    if (kind.is_graph) continue;     // a batch is one item: tests/train/graph_run_test.cpp
    if (name == "images") continue;  // networks of their own: tests/train/images/image_run_test.cpp
    Recipe recipe;
    recipe.data.name = name;
    recipe.data.length = 16;
    recipe.model.dim = 16;
    const tasks::TaskPtr task = task_over(recipe, data_for(kind, recipe));
    const ModelPtr model = build_model(recipe, *task);
    EXPECT_NO_THROW(task->check_model(*model));
    const Batch batch = task->data().batch(data::Split::kTrain, task->training_order(4, 1)->indices(0));
    EXPECT_EQ(batch.size(), 4);
    EXPECT_EQ(std::ssize(batch.towers), task->towers());
    const at::Tensor logits = model->forward({.batch = batch}).logits;
    const tasks::Score score = task->objective().score(logits, batch);
    EXPECT_TRUE(std::isfinite(score.loss.item<double>()));
    EXPECT_GE(task->objective().count_targets(batch), score.correct.item<int64_t>());
    EXPECT_EQ(task->objective().item_rewards(logits, batch).sizes(), (std::vector<int64_t>{4}));
  }
}

TEST(TaskKinds, OnlyATextIsReadInRows) {
  Recipe recipe;
  const tasks::TaskPtr labels = task_over(recipe, noise_dataset(recipe, 16));
  recipe.data.name = "characters";
  const tasks::TaskPtr text = task_over(recipe, some_text());
  const auto shuffled = labels->training_order(4, 1), rows = text->training_order(4, 1);
  EXPECT_TRUE(shuffled->is_beginning(1));
  EXPECT_TRUE(rows->is_beginning(0));
  EXPECT_FALSE(rows->is_beginning(1));
  const std::vector<int64_t> first = rows->indices(0), second = rows->indices(1);
  for (size_t row = 0; row < first.size(); ++row) EXPECT_EQ(second[row], first[row] + 1);
  const int64_t again = text->data().size(data::Split::kTrain) / 4;
  EXPECT_TRUE(rows->is_beginning(again));
  EXPECT_EQ(rows->indices(again), first);
  EXPECT_EQ(labels->evaluation_order(10, 4)->indices(2), (std::vector<int64_t>{8, 9}));
}

TEST(TaskKinds, AreJudgedByTheirOwnMetric) {
  Recipe recipe;
  const tasks::TaskPtr labels = task_over(recipe, noise_dataset(recipe, 16));
  EXPECT_EQ(labels->metric().name, "accuracy");
  EXPECT_EQ(labels->metric().of(1.5, 0.25), 0.25);
  recipe.data.name = "characters";
  const tasks::TaskPtr text = task_over(recipe, some_text());
  EXPECT_EQ(text->metric().name, "bits_per_character");
  EXPECT_NEAR(text->metric().of(1.5, 0.25), 1.5 / std::log(2.0), 1e-12);
  EXPECT_LT(text->metric().score(2), text->metric().score(1)) << "fewer bits are better";
  EXPECT_EQ(text->metric().of_score(text->metric().score(2)), 2);
  const std::vector<data::Baseline> beside = text->baselines(data::Split::kTest);
  ASSERT_EQ(beside.size(), 1u);
  EXPECT_NEAR(beside[0].value, std::log2(7), 0.05);  // seven letters, all as frequent
  EXPECT_THAT(labels->recording_refusal(), HasSubstr("tokens that have a label"));
  EXPECT_EQ(text->recording_refusal(), "");
}

TEST(TaskKinds, ItIsSaidWhatACallLacks) {
  const auto open = [](const Recipe&) { return some_text(); };
  const auto task = [](DatasetPtr data) { return std::make_shared<tasks::NextCharacters>(std::move(data)); };
  EXPECT_THAT(message_of([&] { register_task({.name = "text", .meaning = "", .open = open, .task = task}); }),
              HasSubstr("expected a new name; 'text' is taken"));
  EXPECT_THAT(
      message_of([&] { register_task({.name = "mine", .meaning = "", .open = open, .task = nullptr}); }),
      HasSubstr("the functions open and task"));
  EXPECT_THAT(message_of([&] { register_task({.name = "sbm", .meaning = "", .open = open, .task = task}); }),
              HasSubstr("no section of a recipe has; got 'sbm'"));
  EXPECT_THAT(message_of([] { task_kind("listop"); }), HasSubstr("did you mean 'listops'?"));
  for (const std::string& name : task_names()) EXPECT_NE(name, "mine");
}

}  // namespace
}  // namespace edgewise::train
