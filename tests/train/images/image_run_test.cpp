// Whole runs on generated pictures, lying and standing bars: what networks learn, resuming bit for bit with
// crops, momentum and running means, every recipe for pictures, and recipes that do not fit.
#include <edgewise/data/images/import_images.h>
#include <edgewise/tasks/images.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "kit/message_of.h"
#include "kit/picture_files.h"
#include "kit/scratch_folder.h"
#include "train/tiny_run.h"

namespace edgewise::train {
namespace {

using kit::ScratchFolder;
using testing::HasSubstr;

constexpr const char* kRecipes = EDGEWISE_SOURCE_DIR "/recipes/images/";

// The bars of a whole test program, made once.
const std::filesystem::path& bars() {
  static const ScratchFolder scratch;
  static const std::filesystem::path folder = [] {
    kit::write_bars(scratch / "bars", 16, 160, 60);
    data::save_images(scratch / "data", data::import_images({.from = scratch / "bars"}).images);
    return scratch / "data";
  }();
  return folder;
}

Recipe tiny(const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = {"data.path=" + bars().string(), "train.threads=1"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return load_recipe(std::string(kRecipes) + "tiny.toml", all);
}

RunSummary run(const Recipe& recipe, const std::filesystem::path& folder, bool resume = false,
               std::function<void(int64_t)> after_step = {}) {
  TrainerOptions options;
  options.run_folder = folder;
  options.resume = resume;
  options.after_step = std::move(after_step);
  return Trainer(recipe, open_task(recipe), options).run();
}

TEST(ImageRun, TheTinyRecipeLearnsItsPictures) {
  const ScratchFolder scratch;
  const RunSummary summary = run(tiny(), scratch / "run");
  ASSERT_TRUE(summary.test);
  EXPECT_GT(summary.test->accuracy, 0.9) << "chance is a half";
  EXPECT_GT(summary.test->density.min().item<double>(), 0.05);
  EXPECT_LT(summary.test->density[0].max().item<double>(), 0.1) << "windows of 25 of 256 pixels";
}

TEST(ImageRun, EveryAttentionTrains) {
  const ScratchFolder scratch;
  const std::vector<std::vector<std::string>> all = {
      {"attention.kind=dense"},
      {"attention.kind=dense", "images.augmented=false"},
      {"attention.kind=dense", "train.precision=bf16"},
      {"attention.kind=window", "train.precision=bf16"},
      {"attention.kind=random", "random.alpha=8"},
      {"attention.kind=random", "random.alpha=2", "attention.unit=16"},
      {"attention.kind=window", "attention.unit=16"},
      {"attention.kind=sbm", "sbm.clusters=8"},
      {"attention.kind=sbm", "sbm.clusters=8", "attention.unit=16", "train.density_weight=0.1"},
      {"attention.kind=sac", "sac.alpha=2", "sac.node_dim=8", "sac.distance=none"},
      {"attention.kind=sac", "sac.alpha=5", "sac.node_dim=8", "attention.unit=16", "sac.distance=none"},
      {"attention.kind=window+sac", "sac.alpha=1", "sac.node_dim=8", "attention.unit=16"},
      {"attention.kind=indexer", "indexer.alpha=2", "indexer.dim=4", "attention.unit=16"},
      {"attention.kind=dense", "images.augmented=false", "images.network=resnet", "images.depth=18"},
      {"attention.kind=dense", "images.augmented=false", "images.network=transformer",
       "train.optimizer=adamw"},
      {"attention.kind=window", "images.augmented=false", "images.network=transformer", "images.patch=2"}};
  for (size_t n = 0; n < all.size(); ++n) {
    std::vector<std::string> overrides = all[n];
    overrides.insert(overrides.end(), {"train.steps=2", "train.eval_every=2", "train.batch=4",
                                       "train.eval_batches=1", "train.warmup_steps=0"});
    const std::string what = testing::PrintToString(all[n]);
    SCOPED_TRACE(what);
    const RunSummary summary = run(tiny(overrides), scratch / std::to_string(n));
    ASSERT_TRUE(summary.test);
    EXPECT_TRUE(std::isfinite(summary.test->loss));
  }
}

// The dense network and that over every edge are the same function.
TEST(ImageRun, DenseIsEveryEdge) {
  const Recipe dense = tiny({"attention.kind=dense"}), full = tiny({"attention.kind=full"}),
               squares = tiny({"attention.kind=full", "attention.unit=16"});
  const tasks::TaskPtr task = open_task(dense);
  const Batch batch = task->data().batch(data::Split::kTest, std::array<int64_t, 3>{0, 1, 40});
  torch::NoGradGuard no_grad;
  std::vector<at::Tensor> logits;
  for (const Recipe& recipe : {dense, full, squares}) {
    const ModelPtr model = build_model(recipe, *open_task(recipe));
    model->eval();
    logits.push_back(model->forward({.batch = batch}).logits);
  }
  EXPECT_TRUE(torch::allclose(logits[0], logits[1], 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(logits[0], logits[2], 1e-4, 1e-5));
}

TEST(ImageRun, ResumesBitForBit) {
  const std::vector<std::string> overrides = {
      "train.steps=12",           "train.eval_every=6", "train.log_every=1",
      "train.checkpoint_every=4", "train.batch=12",     "train.eval_batches=2",
      "attention.kind=sbm",       "sbm.clusters=8",     "model.dropout=0.1"};
  const Recipe recipe = tiny(overrides);
  const ScratchFolder scratch;
  run(recipe, scratch / "whole");
  struct Killed {};
  EXPECT_THROW(run(recipe, scratch / "parts", false,
                   [](int64_t step) {
                     if (step == 7) throw Killed();
                   }),
               Killed);
  run(recipe, scratch / "parts", true);
  tiny_run::expect_same_run(scratch / "whole", scratch / "parts");
  const io::TensorFile last = io::load_safetensors(scratch / "whole" / "checkpoints" / "last.safetensors");
  EXPECT_TRUE(last.tensors.contains("norm.running_mean"));
  EXPECT_TRUE(last.tensors.contains("optimizer/momentum/head.weight"));
}

// Passes over the pictures have indices of their own, which is what crops and flips are drawn by.
TEST(ImageRun, EveryPassDrawsAnew) {
  const tasks::TaskPtr task = open_task(tiny());
  const int64_t size = task->data().size(data::Split::kTrain);
  const auto order = task->training_order(100, 1);
  std::map<int64_t, int64_t> seen;  // pictures by pass
  for (int64_t step = 0; step < 8; ++step)
    for (const int64_t index : order->indices(step)) ++seen[index / size];
  EXPECT_EQ(seen, (std::map<int64_t, int64_t>{{1, size}, {2, size}, {3, size}, {4, size}, {5, size}}));
  const auto again = task->training_order(100, 1);
  EXPECT_EQ(again->indices(7), order->indices(7)) << "resuming jumps";
}

// On small pictures in place of theirs; one step of each.
TEST(ImageRecipes, AllOfThemRun) {
  const ScratchFolder scratch;
  kit::write_bars(scratch / "bars", 32, 24, 8);
  data::save_images(scratch / "data", data::import_images({.from = scratch / "bars"}).images);
  data::ImageImportOptions names{.from = scratch / "bars", .size = 64, .keep_files = true};
  data::save_images(scratch / "names", data::import_images(names).images);
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(kRecipes)) {
    if (file.path().extension() != ".toml") continue;
    const std::string name = file.path().stem().string();
    SCOPED_TRACE(name);
    std::vector<std::string> overrides = {
        "data.path=" + (scratch / (name.starts_with("imagenet") ? "names" : "data")).string(),
        "train.device=cpu",
        "train.precision=fp32",
        "train.batch=2",
        "train.steps=1",
        "train.warmup_steps=0",
        "train.eval_batches=1",
        "train.eval_every=1"};
    if (name.starts_with("cifar100")) overrides.push_back("images.widen=1");
    Recipe recipe = load_recipe(file.path().string(), overrides);
    if (recipe.train.density_weight > 0) recipe.train.density_start = 0;
    const ModelPtr model = build_model(recipe, *open_task(recipe));
    const tasks::TaskPtr task = open_task(recipe);
    model->train();
    const Batch batch = task->data().batch(data::Split::kTrain, task->training_order(2, 1)->indices(0));
    const at::Tensor logits = model->forward({.batch = batch}).logits;
    EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{2, 2}));
    EXPECT_TRUE(logits.isfinite().all().item<bool>());
    ++count;
  }
  EXPECT_GE(count, 14);
}

TEST(ImageRecipes, MistakesAreExplained) {
  const auto message = [](const std::vector<std::string>& overrides) {
    return kit::message_of([&] {
      const Recipe recipe = tiny(overrides);
      build_model(recipe, *open_task(recipe));
    });
  };
  EXPECT_THAT(message({"images.network=vgg"}), HasSubstr("one of wide, resnet, transformer"));
  EXPECT_THAT(message({"images.wide=2"}), HasSubstr("unknown key 'images.wide'"));
  EXPECT_THAT(message({"images.augmented=false"}),
              HasSubstr("attention.kind = dense, which then stands for none"));
  EXPECT_THAT(message({"images.network=transformer"}),
              HasSubstr("images.augmented = false with network = transformer"));
  EXPECT_THAT(message({"attention.kind=performer"}),
              HasSubstr("chooses edges, or dense, beside convolutions"));
  EXPECT_THAT(message({"attention.kind=sac", "sac.candidate_window=3"}),
              HasSubstr("no sac.candidate_window"));
  EXPECT_THAT(message({"images.depth=11"}), HasSubstr("6 n + 4"));
  EXPECT_THAT(message({"images.padding=40"}), HasSubstr("below the size of pictures"));
  EXPECT_THAT(message({"data.path=nowhere"}), HasSubstr("edgewise data images --from SOURCE"));
  EXPECT_THAT(message({"train.nesterov=true", "train.momentum=1"}), HasSubstr("train.momentum"));
}

}  // namespace
}  // namespace edgewise::train
