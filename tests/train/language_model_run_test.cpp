// Language models from recipe to result: they learn, resume bit for bit with their memory, and the recipes
// are of one size.
#include <edgewise/data/characters.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/step.h>
#include <edgewise/train/stop_signal.h>
#include <edgewise/train/trainer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>
#include <filesystem>

#include "kit/recorded.h"
#include "kit/scratch_folder.h"

namespace edgewise::train {
namespace {

using kit::ScratchFolder;

Recipe text_recipe(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), "attention.kind=dense");  // of the options below only its own count
  return parse_recipe(R"(
[data]
name = "characters"
path = "made here"
length = 16
[model]
layers = 2
dim = 16
heads = 2
hidden = 32
dropout = 0.1
[transformer_xl]
memory = 12
[adaptive_span]
memory = 12
limit = 12
ramp = 4
[tree]
step = 2
[sbm]
clusters = 4
[sac]
alpha = 3
test_decoding = "greedy"
[train]
steps = 12
batch = 4
micro_batch = 2
learning_rate = 5e-3
schedule = "constant"
eval_every = 6
checkpoint_every = 3
log_every = 1
threads = 1
)",
                      "text", overrides);
}

// Words in a fixed order with a few exceptions: predictable, not trivially.
std::shared_ptr<const data::Characters> some_text(int64_t context = 16, size_t length = 4000) {
  std::vector<uint8_t> text;
  for (size_t n = 0; text.size() < length; ++n)
    for (const char c : std::string(n % 5 == 0 ? "graphs " : n % 3 == 0 ? "learned " : "edges and "))
      text.push_back(static_cast<uint8_t>(c));
  text.resize(length);
  return std::make_shared<data::Characters>("words", std::move(text), context);
}

RunSummary run_text(const Recipe& recipe, const std::filesystem::path& folder, bool resume = false,
                    std::function<void(int64_t)> after_step = {}) {
  TrainerOptions options;
  options.run_folder = folder;
  options.resume = resume;
  options.after_step = std::move(after_step);
  return Trainer(recipe, some_text(recipe.data.length), options).run();
}

class EveryAttention : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryAttention,
                         testing::Values("dense", "window", "sbm", "sac", "adaptive_span", "transformer_xl",
                                         "tree"));

TEST_P(EveryAttention, ResumesBitForBit) {
  const ScratchFolder scratch;
  const Recipe recipe = text_recipe({std::string("attention.kind=") + GetParam()});
  run_text(recipe, scratch / "whole");
  run_text(recipe, scratch / "cut", false, [](int64_t step) {
    if (step == 5) std::raise(SIGINT);
  });
  run_text(recipe, scratch / "cut", true);
  EXPECT_EQ(kit::recorded_without_timings(scratch / "whole"), kit::recorded_without_timings(scratch / "cut"));
  for (const char* name : {"last.safetensors", "best.safetensors"}) {
    const auto a = io::load_safetensors(scratch / "whole" / "checkpoints" / name),
               b = io::load_safetensors(scratch / "cut" / "checkpoints" / name);
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (const auto& [key, tensor] : a.tensors) EXPECT_TRUE(at::equal(tensor, b.tensors.at(key))) << key;
  }
  const bool has_memory =
      std::string(GetParam()) == "transformer_xl" || std::string(GetParam()) == "adaptive_span";
  const auto last = io::load_safetensors(scratch / "whole" / "checkpoints" / "last.safetensors");
  EXPECT_EQ(last.tensors.count("memory/1"), has_memory ? 1u : 0u);
}

// Two steps beside the same two in fp32: losses differ by what bf16 rounds, and gradients point the same way.
TEST_P(EveryAttention, TrainsInBf16) {
  const Recipe recipe = text_recipe({std::string("attention.kind=") + GetParam(), "model.dropout=0"});
  const auto text = some_text();
  std::vector<double> losses[2];
  at::Tensor gradients[2];  // of all parameters, one after the other
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    torch::manual_seed(7);
    const ModelPtr model = build_model(recipe, *text);
    model->train();
    std::vector<at::Tensor> memories;
    const std::vector<int64_t> indices = {0, 20, 40, 60};
    StepOptions options;
    options.micro_batch = 2;
    options.precision = precision;
    const bool half = precision == Precision::kBf16;
    for (uint64_t step = 0; step < 2; ++step) {
      const StepReport report = accumulate_gradients(*model, text->batch(data::Split::kTrain, indices),
                                                     options, {.seed = 1, .step = step}, &memories);
      EXPECT_TRUE(std::isfinite(report.loss));
      losses[half].push_back(report.task_loss);
    }
    std::vector<at::Tensor> parts;
    for (const at::Tensor& parameter : model->parameters())
      parts.push_back(parameter.grad().defined() ? parameter.grad().flatten()
                                                 : at::zeros({parameter.numel()}));
    gradients[half] = at::cat(parts).to(at::kDouble);
  }
  for (size_t step = 0; step < 2; ++step)
    EXPECT_NEAR(losses[1][step], losses[0][step], 0.005 * losses[0][step]) << step;
  const double cosine =
      (gradients[0].dot(gradients[1]) / gradients[0].norm() / gradients[1].norm()).item<double>();
  EXPECT_GT(cosine, 0.98);
}

TEST(LanguageModelTraining, LearnsMoreThanLetterFrequencies) {
  const ScratchFolder scratch;
  const Recipe recipe = text_recipe({"train.steps=150", "train.eval_every=75", "train.batch=8",
                                     "model.dropout=0", "attention.kind=transformer_xl"});
  const RunSummary summary = run_text(recipe, scratch / "run");
  ASSERT_TRUE(summary.test);
  EXPECT_EQ(summary.test->metric->name, "bits_per_character");
  EXPECT_NEAR(summary.test->value(), summary.test->loss / std::log(2.0), 1e-12);
  EXPECT_LT(summary.test->value(), 0.6 * some_text()->unigram_bits());
  ASSERT_TRUE(summary.best);
  EXPECT_GT(*summary.best, 0);
  int found = 0;
  for (const MetricRecord& record : read_metrics(scratch / "run" / "metrics.jsonl"))
    found += find_metric(record, "bits_per_character") != nullptr;
  EXPECT_EQ(found, 153);
}

TEST(LanguageModelTraining, ACheckpointNeedsNoDataToBeRead) {
  const ScratchFolder scratch;
  const Recipe recipe = text_recipe({"train.steps=2"});
  run_text(recipe, scratch / "run");
  const std::string best = (scratch / "run" / "checkpoints" / "best.safetensors").string();
  LanguageModel model = load_language_model(recipe, best);
  EXPECT_EQ(model->options.bytes, some_text()->bytes());
  const std::vector<uint8_t> other(400, 'q');
  const auto others = std::make_shared<data::Characters>("other", other, 16);
  EXPECT_THROW(tasks::NextCharacters(others).check_model(*model), c10::ValueError);
  EXPECT_NO_THROW(tasks::NextCharacters(some_text()).check_model(*model));
}

TEST(LanguageModelTraining, AFailedFirstStepLeavesNoFolder) {
  const ScratchFolder scratch;
  // More rows than pieces of text: known when the first batch is put together.
  EXPECT_THROW(run_text(text_recipe({"train.batch=1000", "train.micro_batch=1000"}), scratch / "run"),
               c10::ValueError);
  EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
}

TEST(LanguageModelRecipes, KindsWithoutACausalFormAreRefused) {
  for (const char* kind : {"linear", "reformer", "performer", "linformer", "nystromformer"}) {
    try {
      text_recipe({std::string("attention.kind=") + kind});
      ADD_FAILURE() << kind;
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(),
                  testing::AllOf(testing::HasSubstr("no causal form"), testing::HasSubstr(kind)));
    }
  }
  EXPECT_THROW(text_recipe({"attention.kind=sac", "sac.walk=pairs"}), c10::ValueError);
  EXPECT_THROW(parse_recipe("[attention]\nkind = \"tree\"\n", "x"), c10::ValueError);
}

void expect_one_size(const std::string& folder, const std::vector<std::string>& names) {
  const std::vector<uint8_t> bytes = {'a', 'b'};
  int64_t expected = 0;
  for (const std::string& name : names) {
    const Recipe recipe =
        load_recipe(std::string(EDGEWISE_SOURCE_DIR) + "/recipes/" + folder + "/" + name + ".toml");
    int64_t count = 0;
    LanguageModel model = build_language_model(recipe, bytes);
    for (const at::Tensor& parameter : model->parameters()) count += parameter.numel();
    if (expected == 0) expected = count;
    EXPECT_NEAR(static_cast<double>(count), static_cast<double>(expected),
                1e-3 * static_cast<double>(expected))
        << folder << "/" << name;
  }
}

TEST(LanguageModelRecipes, AreOfOneSize) {
  expect_one_size("lm", {"dense", "window", "sbm", "sac", "adaptive-span", "transformer-xl", "bpt"});
  expect_one_size("enwik8", {"dense", "transformer-xl", "adaptive-span", "bpt", "window-sbm", "window-sac"});
}

}  // namespace
}  // namespace edgewise::train
