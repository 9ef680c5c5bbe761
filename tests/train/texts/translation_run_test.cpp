// Translation from recipe to result: it learns to turn sentences round, resumes bit for bit, tests the mean
// of the last weights, and refuses what a decoder cannot have.
#include <edgewise/data/examples/import_translation.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/models/encoder_decoder.h>
#include <edgewise/tasks/translation.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/schedule.h>
#include <edgewise/train/stop_signal.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>
#include <edgewise/train/translator.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "kit/message_of.h"
#include "kit/scratch_folder.h"

namespace edgewise::train {
namespace {

using kit::ScratchFolder;
using testing::HasSubstr;

// Sentences of 3 to 6 of eight words, and the same turned round.
void write_reversed(const ScratchFolder& scratch, const std::string& name, int64_t count, uint64_t seed) {
  std::string source, target;
  uint64_t state = seed * 2654435761u + 12345;
  const auto below = [&](uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
  };
  const char* const words[] = {"ab", "bc", "cd", "de", "ef", "fg", "gh", "hi"};
  for (int64_t n = 0; n < count; ++n) {
    std::vector<std::string> sentence(3 + below(4));
    for (std::string& word : sentence) word = words[below(8)];
    const auto write = [](std::string& text, const std::vector<std::string>& all) {
      for (size_t w = 0; w < all.size(); ++w) text += (w ? " " : "") + all[w];
      text += "\n";
    };
    write(source, sentence);
    std::ranges::reverse(sentence);
    write(target, sentence);
  }
  scratch.write(name + ".a", source);
  scratch.write(name + ".b", target);
}

std::string reversed_data(const ScratchFolder& scratch) {
  const auto files = [&](const std::string& name, int64_t count, uint64_t seed) {
    write_reversed(scratch, name, count, seed);
    return data::ParallelFiles{
        .name = name, .source = scratch / (name + ".a"), .target = scratch / (name + ".b")};
  };
  data::TranslationImportOptions options;
  options.train = files("train", 2000, 1);
  options.validation = files("valid", 50, 2);
  options.tests = {files("one", 60, 3), files("two", 40, 4)};
  options.subword_merges = 100;
  options.max_length = 16;
  const data::ImportedTranslation made = data::import_translation(options);
  const std::string folder = scratch / "data";
  data::save_translation(folder, made.examples, made.reader, made.sets);
  return folder;
}

Recipe reversed_recipe(const std::string& data, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), "data.path=" + data);
  return parse_recipe(R"(
[data]
name = "translation"
[model]
layers = 2
dim = 32
heads = 2
hidden = 64
dropout = 0.0
attention_dropout = 0.0
norm_first = false
activation = "relu"
positions = "sinusoidal"
[attention]
kind = "dense"
[translation]
beam = 3
length_extra = 10
bootstrap = 20
[train]
steps = 20
batch = 32
batch_tokens = 512
learning_rate = 5e-3
schedule = "inverse_sqrt"
warmup_steps = 10
beta2 = 0.98
eps = 1e-8
label_smoothing = 0.1
average_last = 2
eval_every = 5
checkpoint_every = 5
log_every = 5
threads = 1
)",
                      "reversed", overrides);
}

RunSummary run_translation(const Recipe& recipe, const std::filesystem::path& folder, bool resume = false,
                           std::function<void(int64_t)> after_step = {}) {
  TrainerOptions options;
  options.run_folder = folder;
  options.resume = resume;
  options.after_step = std::move(after_step);
  return Trainer(recipe, open_task(recipe), options).run();
}

double figure(const Evaluation& evaluation, const std::string& name) {
  const auto found = std::ranges::find(evaluation.figures, name, &tasks::Figure::name);
  EXPECT_NE(found, evaluation.figures.end()) << name;
  return found == evaluation.figures.end() ? -1 : found->value;
}

TEST(TranslationSchedule, InverseSquareRootsAreFairseqs) {
  const Schedule schedule(
      {.kind = parse_schedule("inverse_sqrt"), .peak = 5e-3, .steps = 8000, .warmup = 2000, .initial = 1e-7});
  const auto rate = [&](int64_t update) { return schedule.at(update - 1).learning_rate; };
  EXPECT_NEAR(rate(1), 2.59995e-6, 1e-12);
  EXPECT_NEAR(rate(100), 2.50095e-4, 1e-12);
  EXPECT_NEAR(rate(2000), 5e-3, 1e-12);
  EXPECT_NEAR(rate(4000), 3.5355e-3, 1e-7);
  EXPECT_NEAR(rate(8000), 2.5e-3, 1e-12);
  EXPECT_EQ(schedule.at(5).beta1, 0.9);
}

TEST(LabelSmoothing, IsThatOfTorchAndOlderFairseq) {
  Batch batch;
  batch.towers = {{.tokens = torch::zeros({1, 2}, torch::kLong)},
                  {.tokens = torch::zeros({1, 3}, torch::kLong)}};
  batch.labels = torch::tensor({0, -1, 0}, torch::kLong).unsqueeze(0);
  const at::Tensor logits = torch::tensor({2.0, 1.0, 0.0, -1.0}, torch::kDouble).repeat({1, 3, 1});
  const auto loss = [&](double smoothing) {
    const auto objective = tasks::smoothed_cross_entropy(smoothing);
    EXPECT_EQ(objective->count_targets(batch), 2);
    return objective->score(logits, batch).loss.item<double>();
  };
  EXPECT_NEAR(loss(0), 2 * .440190, 1e-5);
  EXPECT_NEAR(loss(0.1), 2 * .590190, 1e-5);
  EXPECT_EQ(tasks::cross_entropy().score(logits, batch).correct.item<int64_t>(), 2);
  EXPECT_NEAR(tasks::cross_entropy().item_rewards(logits, batch)[0].item<double>(), -.440190, 1e-6);
}

TEST(TranslationRun, LearnsToTurnSentencesRound) {
  const ScratchFolder scratch;
  const Recipe recipe = reversed_recipe(
      reversed_data(scratch),
      {"train.steps=700", "train.warmup_steps=100", "train.eval_every=100", "train.log_every=100"});
  const RunSummary summary = run_translation(recipe, scratch / "run");
  ASSERT_TRUE(summary.test);
  EXPECT_EQ(summary.test->metric->name, "bleu");
  EXPECT_GT(summary.test->value(), 0.97);
  EXPECT_GT(figure(*summary.test, "bleu_two"), 0.95);
  EXPECT_EQ(figure(*summary.test, "bleu_one"), summary.test->value());
  EXPECT_LE(figure(*summary.test, "bleu_one_low"), figure(*summary.test, "bleu_one"));
  EXPECT_GE(figure(*summary.test, "bleu_one_high"), figure(*summary.test, "bleu_one"));
  const std::string written = scratch.read("run/written/two.txt");
  EXPECT_EQ(std::ranges::count(written, '\n'), 40);

  // The run folder alone translates.
  const Translator translator(scratch / "run",
                              {.checkpoint = (scratch / "run/checkpoints/mean.safetensors").string(),
                               .device = {},
                               .overrides = {"translation.beam=2"}});
  const std::vector<std::vector<int32_t>> texts = {translator.read("ab cd gh"),
                                                   translator.read("hi ab ab fg")};
  EXPECT_EQ(translator.translate(texts, 0), (std::vector<std::string>{"gh cd ab", "fg ab ab hi"}));
  EXPECT_THROW(translator.read(""), std::invalid_argument);
  EXPECT_THROW(translator.read("ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab"), std::invalid_argument);
}

// Weights, records and translations.
void expect_same_run(const ScratchFolder& scratch, const std::string& a, const std::string& b) {
  for (const char* const name : {"last", "best", "mean"}) {
    const std::string file = std::string("/checkpoints/") + name + ".safetensors";
    const auto x = io::load_safetensors(scratch / (a + file)), y = io::load_safetensors(scratch / (b + file));
    ASSERT_EQ(x.tensors.size(), y.tensors.size());
    for (const auto& [key, tensor] : x.tensors)
      EXPECT_TRUE(torch::equal(tensor, y.tensors.at(key))) << name << " " << key;
  }
  EXPECT_EQ(scratch.read(a + "/written/one.txt"), scratch.read(b + "/written/one.txt"));
}

TEST(TranslationRun, ResumesBitForBitWithItsLastWeights) {
  const ScratchFolder scratch;
  const std::string data = reversed_data(scratch);
  for (const std::string kind : {"dense", "sbm"}) {
    const Recipe recipe = reversed_recipe(data, {"attention.kind=" + kind, "model.dropout=0.1"});
    run_translation(recipe, scratch / (kind + "_whole"));
    const RunSummary stopped = run_translation(recipe, scratch / (kind + "_parts"), false, [](int64_t steps) {
      if (steps == 12) std::raise(SIGTERM);
    });
    EXPECT_TRUE(stopped.interrupted);
    run_translation(recipe, scratch / (kind + "_parts"), true);
    expect_same_run(scratch, kind + "_whole", kind + "_parts");
    // The mean of the last two, of which older ones are gone.
    const std::string folder = kind + "_whole/checkpoints/";
    EXPECT_FALSE(std::filesystem::exists(scratch / (folder + "step-00000010.safetensors")));
    const auto mean = io::load_safetensors(scratch / (folder + "mean.safetensors")),
               first = io::load_safetensors(scratch / (folder + "step-00000015.safetensors")),
               second = io::load_safetensors(scratch / (folder + "step-00000020.safetensors"));
    const std::string name = "layers.0.linear1.weight";
    EXPECT_LT((mean.tensors.at(name) - (first.tensors.at(name) + second.tensors.at(name)) / 2)
                  .abs()
                  .max()
                  .item<double>(),
              1e-7);
  }
}

class TranslationOverEdges : public ::testing::TestWithParam<const char*> {};

TEST_P(TranslationOverEdges, TrainsAndTranslates) {
  const ScratchFolder scratch;
  const std::string kind = GetParam();
  std::vector<std::string> overrides = {"attention.kind=" + kind, "train.steps=5", "train.warmup_steps=5",
                                        "train.density_weight=0.01"};
  if (kind.starts_with("window")) overrides.push_back("window.width=2");
  const Recipe recipe = reversed_recipe(reversed_data(scratch), overrides);
  const RunSummary summary = run_translation(recipe, scratch / "run");
  ASSERT_TRUE(summary.test);
  EXPECT_EQ(summary.test->density.sizes(), (std::vector<int64_t>{6, 2}));
  EXPECT_TRUE((summary.test->density > 0).all().item<bool>());
  EXPECT_TRUE((summary.test->density <= 1).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Kinds, TranslationOverEdges,
                         ::testing::Values("full", "window", "random", "sbm", "window+sbm", "sac"));

TEST(TranslationRecipe, PlacesCanHaveAttentionOfTheirOwn) {
  const Recipe recipe = reversed_recipe("x", {"attention.kind=linear", "attention.decoder=window",
                                              "attention.cross=sbm", "window.width=3", "sbm.clusters=5"});
  EXPECT_EQ(parse_recipe(to_toml(recipe), "again"), recipe);
  const ScratchFolder scratch;
  Recipe real = recipe;
  real.data.path = reversed_data(scratch);
  const ModelPtr model = build_model(real, *open_task(real));
  const auto* const translator = dynamic_cast<EncoderDecoderImpl*>(model.get());
  ASSERT_TRUE(translator);
  EXPECT_FALSE(translator->options.encoder.edges);
  EXPECT_TRUE(translator->options.encoder.method);
  const auto names = model->named_parameters();
  EXPECT_TRUE(names.contains("layers.0.multihead_attn.edges.clusters"));
  EXPECT_FALSE(names.contains("layers.0.self_attn.edges.clusters"));
}

TEST(TranslationRecipe, WhatADecoderCannotHaveIsRefused) {
  const auto refusal = [](const std::vector<std::string>& overrides) {
    return kit::message_of([&] { reversed_recipe("x", overrides); });
  };
  EXPECT_THAT(refusal({"attention.kind=linear"}), HasSubstr("attention.decoder cannot be linear"));
  EXPECT_THAT(refusal({"attention.kind=sbm", "sbm.preset=published"}),
              HasSubstr("sbm.count_padding = false"));
  EXPECT_THAT(refusal({"attention.cross=sbm", "sbm.preset=published"}),
              HasSubstr("sbm.count_padding = false of attention.cross"));
  EXPECT_THAT(refusal({"attention.decoder=sac", "sac.budget=20"}), HasSubstr("set sac.budget = 0"));
  EXPECT_THAT(refusal({"attention.cross=segments"}), HasSubstr("attention.cross cannot be segments"));
  EXPECT_THAT(refusal({"attention.kind=sac", "sac.walk=pairs", "sac.estimator=paired"}),
              HasSubstr("sac.walk = rooted"));
  EXPECT_THAT(refusal({"attention.cross=transformer_xl"}), HasSubstr("language models"));
  EXPECT_THAT(refusal({"train.micro_batch=8"}), HasSubstr("train.micro_batch = 0"));
  EXPECT_THAT(refusal({"model.dim=2", "model.heads=1"}), HasSubstr("sinusoidal"));
  EXPECT_THAT(refusal({"train.snapshot_every=5"}), HasSubstr("train.snapshot_every = 0"));
  EXPECT_THAT(
      kit::message_of([] { parse_recipe("[attention]\nkind = \"dense\"\ncross = \"window\"\n", "other"); }),
      HasSubstr("data.name = translation"));
}

}  // namespace
}  // namespace edgewise::train
