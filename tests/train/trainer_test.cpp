// Whole runs of a tiny recipe: they learn, they stop and resume bit for bit, they survive being killed at any
// moment.
#include <edgewise/train/trainer.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <edgewise/data/characters.h>
#include <edgewise/data/repeated_tokens.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/io/safetensors.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/pass_graphs.h>
#include <edgewise/train/stop_signal.h>

#include "kit/message_of.h"
#include "kit/scratch_folder.h"
#include "train/run/run_folder.h"
#include "train/tiny_run.h"

namespace edgewise::train {
namespace {

using kit::message_of;
using kit::ScratchFolder;
using tiny_run::comparable_metrics;
using tiny_run::expect_same_run;
using tiny_run::number;
using tiny_run::run;
using tiny_run::tiny_data;
using tiny_run::tiny_recipe;

TEST(Trainer, TheWeightOfTheDensityRises) {
  const ScratchFolder scratch;
  run(tiny_recipe({"train.density_weight=0.5", "train.density_start=3", "train.density_warmup=8"}),
      scratch / "run");
  int64_t steps = 0;
  for (const MetricRecord& record : comparable_metrics(scratch / "run")) {
    if (std::get<std::string>(*find_metric(record, "kind")) != "train") continue;
    ++steps;
    // Steps are counted from 1 in records; the penalty of a learned layer is near its density, and never 0.
    const auto step = static_cast<double>(std::get<int64_t>(*find_metric(record, "step")) - 1);
    const double beside = number(record, "loss") - number(record, "task_loss");
    const double weight = 0.5 * std::clamp((step - 3) / 8, 0.0, 1.0),
                 density = number(record, "density_mean");
    EXPECT_NEAR(beside, weight * density, 0.25 * weight) << "step " << step;
    EXPECT_EQ(beside > 0, step > 3) << "step " << step;
  }
  EXPECT_EQ(steps, 24);
}

TEST(Trainer, AFirstStepThatFailsLeavesNoFolder) {
  const ScratchFolder scratch;
  EXPECT_THROW(run(tiny_recipe({"train.density_weight=1e39"}), scratch / "run"),
               c10::Error);  // no fp32 number
  EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
}

TEST(Trainer, LearnsATinyTask) {
  const ScratchFolder scratch;
  const Recipe recipe =
      tiny_recipe({"train.steps=300", "train.warmup_steps=60", "train.batch=32", "train.micro_batch=32",
                   "train.learning_rate=1e-2", "train.eval_every=100", "train.checkpoint_every=100",
                   "train.density_weight=0", "model.dropout=0", "model.attention_dropout=0",
                   "model.embedding_std=0.5", "data.length=6"});
  const RunSummary summary = run(recipe, scratch.path() / "run");
  EXPECT_EQ(summary.exit_code(), 0);
  EXPECT_EQ(summary.steps, 300);
  const auto records = read_metrics(scratch.path() / "run" / "metrics.jsonl");
  double first = 0, last = 0;
  for (size_t i = 0; i < 10; ++i) first += number(records[i], "task_loss") / 10;
  for (const MetricRecord& record : records) {
    if (*find_metric(record, "kind") == MetricValue("train") &&
        std::get<int64_t>(*find_metric(record, "step")) > 290) {
      last += number(record, "task_loss") / 10;
    }
  }
  EXPECT_GT(first, 0.55);
  EXPECT_LT(last, first - 0.2) << "the loss did not fall";
  ASSERT_TRUE(summary.test.has_value());
  EXPECT_GT(summary.test->accuracy, 0.75);
}

TEST(Trainer, WritesTheRunFolder) {
  const ScratchFolder scratch;
  const auto folder = scratch.path() / "run";
  const Recipe recipe = tiny_recipe({"train.snapshot_every=8", "train.log_every=5"});
  const RunSummary summary = run(recipe, folder);
  EXPECT_EQ(parse_recipe(io::read_file(folder / "config.toml"), "config.toml"), recipe);
  EXPECT_THAT(io::read_file(folder / "env.json"), testing::HasSubstr("torch"));
  std::vector<std::string> kinds;
  for (const MetricRecord& record : read_metrics(folder / "metrics.jsonl")) {
    kinds.push_back(std::get<std::string>(*find_metric(record, "kind")) +
                    std::to_string(std::get<int64_t>(*find_metric(record, "step"))));
  }
  EXPECT_THAT(kinds, testing::ElementsAre("train1", "train5", "eval8", "train10", "train15", "eval16",
                                          "train20", "train24", "eval24", "test24"));
  const CheckpointInfo best = read_checkpoint_info((folder / "checkpoints" / "best.safetensors").string());
  EXPECT_EQ(best.best_metric, summary.best);
  EXPECT_EQ(best.step, summary.best_step);
  EXPECT_THAT(RunFolder{.root = folder}.snapshot_steps(), testing::ElementsAre(0, 8, 16, 24));
}

TEST(Trainer, StopAndResumeEqualsOneRun) {
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe();
  run(recipe, scratch.path() / "whole");
  // Stops between checkpoints, on a checkpoint and right after an evaluation.
  for (const int64_t stop : {3, 12, 16}) {
    const auto folder = scratch.path() / ("stopped-" + std::to_string(stop));
    const RunSummary first = run(recipe, folder, false, [&](int64_t steps) {
      if (steps == stop) std::raise(SIGTERM);
    });
    EXPECT_TRUE(first.interrupted);
    EXPECT_EQ(first.exit_code(), 130);
    EXPECT_EQ(first.steps, stop);
    // after_step is the last that happens before the loop looks for a signal: what it stopped is saved all
    // the same.
    EXPECT_EQ(read_checkpoint_info((folder / "checkpoints" / "last.safetensors").string()).step, stop);
    const RunSummary second = run(recipe, folder, true);
    EXPECT_FALSE(second.interrupted);
    expect_same_run(scratch.path() / "whole", folder);
  }
}

// A key that came later has its default in a run that does not name it; keys that only other kinds of
// attention read once stood in every run.
TEST(Trainer, ARunOfAnOlderVersionResumes) {
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe();
  run(recipe, scratch / "whole");
  const std::filesystem::path folder = scratch / "older";
  run(recipe, folder, false, [](int64_t steps) {
    if (steps == 12) std::raise(SIGTERM);
  });
  std::string older;
  {
    std::ifstream config(folder / "config.toml");
    for (std::string line; std::getline(config, line);)
      if (!line.starts_with("density_start") && !line.starts_with("cuda_graph"))
        older += line + (line == "[attention]" ? "\nfeatures = 256\nmemory = 512\n" : "\n");
  }
  ASSERT_NE(older, to_toml(recipe));
  ASSERT_THAT(older, testing::HasSubstr("memory = 512"));
  std::ofstream(folder / "config.toml") << older;
  EXPECT_FALSE(run(recipe, folder, true).interrupted);
  expect_same_run(scratch / "whole", folder);
}

// The running mean of the rewards is part of a checkpoint.
TEST(Trainer, StopAndResumeWithEdgesThatLearnByReward) {
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe({"attention.kind=sac", "sac.estimator=reinforce", "sac.alpha=2",
                                     "sac.node_dim=8", "train.density_weight=0"});
  run(recipe, scratch.path() / "whole");
  const auto folder = scratch.path() / "stopped";
  run(recipe, folder, false, [&](int64_t steps) {
    if (steps == 11) std::raise(SIGTERM);
  });
  run(recipe, folder, true);
  expect_same_run(scratch.path() / "whole", folder);
  const MetricRecord last = read_metrics(folder / "metrics.jsonl").back();
  EXPECT_GT(number(last, "edge_recall"), 0) << "repeated tokens know their right edges";
  const MetricRecord first = read_metrics(folder / "metrics.jsonl").front();
  for (const char* name :
       {"reward", "reward_baseline", "policy_entropy", "policy_log_prob", "policy_gradient_variance"})
    EXPECT_TRUE(std::isfinite(number(first, name))) << name;
}

// A signal during a validation cuts it short; it is made up for after resuming.
TEST(Trainer, AnInterruptedEvaluationIsRepeated) {
  struct Interrupting : data::RepeatedTokens {
    using RepeatedTokens::RepeatedTokens;
    Batch batch(data::Split split, std::span<const int64_t> indices) const override {
      if (split == data::Split::kValidation && armed) std::raise(SIGINT);
      return RepeatedTokens::batch(split, indices);
    }
    bool armed = true;
  };
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe();
  run(recipe, scratch.path() / "whole");
  const auto data = std::make_shared<Interrupting>(data::RepeatedTokensOptions{
      .length = 8, .train_size = 512, .validation_size = 32, .test_size = 32, .seed = 0});
  TrainerOptions options;
  options.run_folder = scratch.path() / "cut";
  const RunSummary first = Trainer(recipe, data, options).run();
  data->armed = false;
  EXPECT_TRUE(first.interrupted);
  EXPECT_EQ(first.steps, 8);
  EXPECT_TRUE(read_checkpoint_info((scratch.path() / "cut" / "checkpoints" / "last.safetensors").string())
                  .evaluation_pending);
  options.resume = true;
  EXPECT_FALSE(Trainer(recipe, data, options).run().interrupted);
  expect_same_run(scratch.path() / "whole", scratch.path() / "cut");
}

// The repeated validation is recorded, and then the process dies before it can save that it is no longer
// pending.
TEST(Trainer, AnEvaluationIsRecordedOnceHoweverOftenItIsRepeated) {
  struct Dying : data::RepeatedTokens {
    using RepeatedTokens::RepeatedTokens;
    Batch batch(data::Split split, std::span<const int64_t> indices) const override {
      if (split == data::Split::kValidation) {
        if (interrupt && indices.size() > 1) std::raise(SIGINT);  // snapshots ask for single examples
        // After the batches of the validation itself only the snapshot asks for more.
        if (batches_left-- == 0) throw std::runtime_error("killed");
      }
      return RepeatedTokens::batch(split, indices);
    }
    mutable std::atomic<int> batches_left = 1000;
    std::atomic<bool> interrupt = true;
  };
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe({"train.snapshot_every=8"});
  run(recipe, scratch.path() / "whole");
  const auto data = std::make_shared<Dying>(data::RepeatedTokensOptions{
      .length = 8, .train_size = 512, .validation_size = 32, .test_size = 32, .seed = 0});
  TrainerOptions options;
  options.run_folder = scratch.path() / "cut";
  EXPECT_TRUE(Trainer(recipe, data, options).run().interrupted);
  options.resume = true;
  data->interrupt = false;
  data->batches_left = 8;  // 32 sequences in micro-batches of 4
  EXPECT_THROW(Trainer(recipe, data, options).run(), std::runtime_error);
  EXPECT_TRUE(read_checkpoint_info((scratch.path() / "cut" / "checkpoints" / "last.safetensors").string())
                  .evaluation_pending);
  EXPECT_THAT(io::read_file(scratch.path() / "cut" / "metrics.jsonl"), testing::HasSubstr("\"eval\""));
  data->batches_left = 1000;
  EXPECT_FALSE(Trainer(recipe, data, options).run().interrupted);
  expect_same_run(scratch.path() / "whole", scratch.path() / "cut");
}

// A first signal asks, a second one ends the process; not one that is the first a second time.
TEST(TrainerDeathTest, ASecondSignalEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopSignal signal;
        std::raise(SIGINT);
        if (!StopSignal::requested()) std::_Exit(1);
        std::raise(SIGINT);  // as `timeout` sends it, to the process and to its group
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        std::raise(SIGTERM);
        std::_Exit(2);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(Trainer, OneRunAtATimeInAFolder) {
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe({"train.steps=8"});
  const auto folder = scratch.path() / "run";
  TrainerOptions options;
  options.run_folder = folder;
  {
    const Trainer first(recipe, tiny_data(recipe), options);
    for (const bool resume : {false, true}) {
      EXPECT_THAT(
          message_of([&] { run(recipe, folder, resume); }),
          testing::AllOf(testing::HasSubstr(folder.string()),
                         testing::HasSubstr("another run is training in it"), testing::HasSubstr("--run")));
    }
  }
  // The file stays, the lock does not; alone in the folder it does not make it a run.
  EXPECT_EQ(run(recipe, folder, true).steps, 8);
  const auto empty = scratch.path() / "empty";
  std::filesystem::create_directory(empty);
  io::write_file_atomically((empty / ".lock").string(), "");
  EXPECT_EQ(run(recipe, empty).steps, 8);
}

TEST(Trainer, MicroBatchesDoNotChangeTheRun) {
  const ScratchFolder scratch;
  const std::vector<std::string> plain = {"model.dropout=0", "train.steps=6", "train.eval_every=6",
                                          "train.warmup_steps=2"};
  auto with = [&](const char* micro) {
    auto overrides = plain;
    overrides.push_back(std::string("train.micro_batch=") + micro);
    const auto folder = scratch.path() / micro;
    run(tiny_recipe(overrides), folder);
    return read_metrics(folder / "metrics.jsonl");
  };
  const auto whole = with("8"), halves = with("4"), quarters = with("2");
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(number(whole[i], "loss"), number(halves[i], "loss"), 1e-4) << i;
    EXPECT_NEAR(number(whole[i], "loss"), number(quarters[i], "loss"), 1e-4) << i;
  }
}

TEST(Trainer, ResumingAFinishedRunAddsNothing) {
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe({"train.steps=8"});
  run(recipe, scratch.path() / "run");
  const std::string before = io::read_file(scratch.path() / "run" / "metrics.jsonl");
  const RunSummary again = run(recipe, scratch.path() / "run", true);
  EXPECT_EQ(again.steps, 8);
  EXPECT_TRUE(again.test.has_value());
  EXPECT_EQ(io::read_file(scratch.path() / "run" / "metrics.jsonl"), before);
}

// Stopped before its first validation, the run is declared finished where it stands.
TEST(Trainer, ARunMayEndWhereItWasStopped) {
  const ScratchFolder scratch;
  const auto folder = scratch.path() / "run";
  run(tiny_recipe(), folder, false, [](int64_t steps) {
    if (steps == 7) std::raise(SIGTERM);
  });
  const RunSummary summary = run(tiny_recipe({"train.steps=7"}), folder, true);
  EXPECT_EQ(summary.steps, 7);
  EXPECT_EQ(summary.best_step, 7);
  EXPECT_TRUE(summary.test.has_value());
}

// Runs are published without their weights: what they recorded must not be lost to who resumes one.
TEST(Trainer, ARunWithoutItsWeightsIsNotBegunAgain) {
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe();
  run(recipe, scratch / "run");
  const auto before = read_metrics(scratch / "run/metrics.jsonl");
  std::filesystem::remove_all(scratch / "run/checkpoints");
  EXPECT_THAT(message_of([&] { run(recipe, scratch / "run", true); }),
              testing::AllOf(testing::HasSubstr("last.safetensors"), testing::HasSubstr("not kept here"),
                             testing::HasSubstr("--run FOLDER")));
  EXPECT_EQ(read_metrics(scratch / "run/metrics.jsonl"), before);
  // One that was killed before its first checkpoint has none to miss, however often it saves from now on.
  const Recipe rare = tiny_recipe({"train.checkpoint_every=1000"});
  run(rare, scratch / "killed", false, [](int64_t step) {
    if (step == 6) std::raise(SIGTERM);
  });
  std::filesystem::remove_all(scratch / "killed/checkpoints");
  EXPECT_EQ(run(tiny_recipe({"train.checkpoint_every=2"}), scratch / "killed", true).steps, rare.train.steps);
}

TEST(Trainer, ResumesWithItsOwnDataAlone) {
  const ScratchFolder scratch;
  run(tiny_recipe(), scratch / "run", false, [](int64_t step) {
    if (step == 5) std::raise(SIGTERM);
  });
  const Recipe recipe = tiny_recipe();
  TrainerOptions options;
  options.run_folder = scratch / "run";
  options.progress = false;
  options.resume = true;
  const auto others = std::make_shared<data::RepeatedTokens>(
      data::RepeatedTokensOptions{.length = 8, .train_size = 512, .validation_size = 31, .test_size = 32});
  EXPECT_THAT(
      message_of([&] { Trainer(recipe, others, options).run(); }),
      testing::AllOf(testing::HasSubstr("\"validation\": 32"), testing::HasSubstr("\"validation\": 31"),
                     testing::HasSubstr("--set data.path=")));
  EXPECT_EQ(run(recipe, scratch / "run", true).steps, recipe.train.steps);
}

TEST(Trainer, RefusesFoldersThatDoNotFit) {
  const ScratchFolder scratch;
  const auto folder = scratch.path() / "run";
  run(tiny_recipe({"train.steps=8"}), folder);
  EXPECT_THAT(message_of([&] { run(tiny_recipe({"train.steps=8"}), folder); }),
              testing::HasSubstr("--resume"));
  EXPECT_THAT(message_of([&] {
                run(tiny_recipe({"train.steps=8", "model.dim=32"}), folder, true);
              }),
              testing::HasSubstr("model.dim was 16 and is now 32"));
  EXPECT_THAT(message_of([&] {
                run(tiny_recipe({"train.steps=8", "train.learning_rate=0.1"}), folder, true);
              }),
              testing::HasSubstr("and is now 0.1."));  // not 0.10000000000000001
  EXPECT_THAT(message_of([&] {
                run(tiny_recipe({"train.steps=8", "sbm.law=poisson"}), folder, true);
              }),
              testing::HasSubstr("sbm.law was unset"));
  EXPECT_THAT(message_of([&] { run(tiny_recipe({"train.steps=6"}), folder, true); }),
              testing::HasSubstr("at least 8"));
  EXPECT_EQ(
      run(tiny_recipe({"train.steps=10", "train.eval_every=5", "train.log_every=2"}), folder, true).steps,
      10);
  const auto stranger = scratch.path() / "stranger";
  io::write_file_atomically((scratch.path() / "file").string(), "x");
  std::filesystem::create_directory(stranger);
  io::write_file_atomically((stranger / "notes.txt").string(), "x");
  EXPECT_THAT(message_of([&] { run(tiny_recipe(), stranger, true); }), testing::HasSubstr("config.toml"));
  EXPECT_FALSE(std::filesystem::exists(stranger / ".lock")) << "a refused folder is left as it was";
}

TEST(Trainer, ANanStopsTheRunAndIsNamed) {
  const ScratchFolder scratch;
  const Recipe recipe = tiny_recipe();
  TrainerOptions options;
  options.run_folder = scratch.path() / "run";
  Trainer* running = nullptr;
  options.after_step = [&](int64_t steps) {
    if (steps != 10) return;
    torch::NoGradGuard no_grad;
    running->model().named_parameters()["encoder.layers.1.self_attn.in_proj_weight"][0][0] =
        std::numeric_limits<float>::quiet_NaN();
  };
  Trainer trainer(recipe, tiny_data(recipe), options);
  running = &trainer;
  EXPECT_THAT(
      message_of([&] { trainer.run(); }),
      testing::AllOf(testing::HasSubstr("step 10"),
                     testing::HasSubstr("parameter encoder.layers.1.self_attn.in_proj_weight (1 of ")));
  // The checkpoints of good steps are still there.
  EXPECT_EQ(read_checkpoint_info((options.run_folder / "checkpoints" / "last.safetensors").string()).step, 8);
}

// The sampler is the first to see what the memberships have become, and says so in the run's own words.
TEST(Trainer, DivergedMembershipsAreNamed) {
  const ScratchFolder scratch;
  EXPECT_THAT(message_of([&] { run(tiny_recipe({"train.learning_rate=1e30"}), scratch / "run"); }),
              testing::AllOf(testing::HasSubstr("train: expected a finite"),
                             testing::HasSubstr("lower train.learning_rate")));
}

// Not a test of its own: the child process of the next one, which finds its folder in the environment.
TEST(TrainerChild, DISABLED_Run) {
  const char* folder = std::getenv("EDGEWISE_TEST_RUN_FOLDER");
  ASSERT_NE(folder, nullptr);
  // Slow enough that the parent can strike anywhere in the run.
  run(tiny_recipe(), folder, true,
      [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
}

pid_t spawn_child(const std::filesystem::path& folder) {
  std::string program = "/proc/self/exe", filter = "--gtest_filter=TrainerChild.DISABLED_Run",
              disabled = "--gtest_also_run_disabled_tests";
  char* arguments[] = {program.data(), filter.data(), disabled.data(), nullptr};
  setenv("EDGEWISE_TEST_RUN_FOLDER", folder.c_str(), 1);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  unsetenv("EDGEWISE_TEST_RUN_FOLDER");
  return error == 0 ? child : -1;
}

int64_t lines_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  return std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
}

// SIGKILL at random moments, several times over in the same run; what is left in the folder must always be
// enough to end as if nothing had happened.
TEST(Trainer, SurvivesBeingKilled) {
  const ScratchFolder scratch;
  run(tiny_recipe(), scratch.path() / "whole");
  const auto folder = scratch.path() / "killed";
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 3; ++round) {
    const int64_t before = lines_in(folder / "metrics.jsonl");
    const int64_t target = before + std::uniform_int_distribution<int64_t>(1, 7)(random);
    const pid_t child = spawn_child(folder);
    ASSERT_GT(child, 0);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    int status = 0;
    bool ended = false;
    while (!ended && lines_in(folder / "metrics.jsonl") < target &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(
          std::chrono::microseconds(std::uniform_int_distribution<int>(0, 3000)(random)));
      ended = waitpid(child, &status, WNOHANG) == child;
    }
    if (ended) break;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  run(tiny_recipe(), folder, true);
  expect_same_run(scratch.path() / "whole", folder);
}

TEST(Trainer, CudaGraphsSayWhyTheyCannotServe) {
  const ScratchFolder scratch;
  const auto refusal = [](const std::vector<std::string>& overrides, const tasks::Task& task) {
    std::vector<std::string> all = {"train.cuda_graph=true", "train.device=cuda"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return pass_graphs_refusal(tiny_recipe(all), task);
  };
  const Recipe on_cpu = tiny_recipe({"train.cuda_graph=true"});
  EXPECT_TRUE(on_cpu.train.cuda_graph);
  EXPECT_THAT(message_of([&] { run(on_cpu, scratch / "run"); }),
              testing::AllOf(testing::HasSubstr("train.device is cpu"),
                             testing::HasSubstr("set train.cuda_graph = false")));
  EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
  const tasks::TokenLabels tokens(tiny_data(on_cpu));
  EXPECT_THAT(refusal({}, tokens), testing::HasSubstr("tokens that have a label"));
  const tasks::NextCharacters text(  // every token has a label
      std::make_shared<data::Characters>("letters", std::vector<uint8_t>(1000, 'a'), 16));
  EXPECT_EQ(refusal({}, text), "");
  EXPECT_EQ(refusal({"attention.kind=dense"}, text), "");
  EXPECT_THAT(refusal({"attention.kind=sac"}, text), testing::HasSubstr("rewards"));
  EXPECT_THAT(refusal({"attention.kind=window"}, text), testing::HasSubstr("attention.kind = window"));
  EXPECT_THAT(refusal({"sbm.self_loops=true"}, text), testing::HasSubstr("self_loops"));
  EXPECT_THAT(refusal({"sbm.sampler=fastrg"}, text), testing::HasSubstr("fastrg"));
  EXPECT_THAT(refusal({"sbm.law=poisson"}, text), testing::HasSubstr("poisson law"));
  EXPECT_EQ(refusal({"sbm.law=poisson", "sbm.estimator=paper"}, text), "");
  EXPECT_THAT(refusal({"sbm.clusters=256"}, text), testing::HasSubstr("128 clusters"));
}

}  // namespace
}  // namespace edgewise::train
