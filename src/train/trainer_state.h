// What a training run has: its parts, where it stands, and what it does (trainer_start.cpp, trainer.cpp).
#pragma once

#include <edgewise/train/trainer.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <edgewise/data/prefetcher.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/optimizer.h>
#include <edgewise/train/pass_graphs.h>
#include <edgewise/train/progress.h>
#include <edgewise/train/ranks.h>
#include <edgewise/train/snapshot.h>
#include <edgewise/train/step.h>
#include <edgewise/train/stop_signal.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/weight_average.h>

#include "train/ranks/gradient_buckets.h"
#include "train/ranks/item_shares.h"
#include "train/ranks/rank_checks.h"
#include "train/ranks/run_state.h"
#include "train/run/first_model.h"
#include "train/run/kept_checkpoints.h"
#include "train/run/kept_weights.h"
#include "train/run/memory.h"
#include "train/run/run_folder.h"
#include "train/run/run_lines.h"
#include "train/run/run_records.h"
#include "train/snapshot/snapshot_recipe.h"
#include "train/step/host_copy.h"

namespace edgewise::train {

// A step that the device may still be at, with what its errors are found with.
struct RunningStep {
  PendingReport report;
  HostCopy norm;
  Batch batch;
  RandomStream random;
  std::shared_ptr<const StepShare> share;  // null: the batch is whole
};

struct Trainer::State {
  State(Recipe recipe_, tasks::TaskPtr task_, TrainerOptions options_);

  RunSummary run();
  // What a run that failed in its first step has left is no run: nothing to resume, in the way of the next.
  void discard_unused();

  Recipe recipe;
  tasks::TaskPtr task;
  TrainerOptions options;
  std::string recipe_toml;
  at::Device device;
  std::string adopted;  // what train.weights brought, in words
  ModelPtr model;
  Optimizer optimizer;
  std::optional<WeightAverage> average;
  Schedule schedule;
  std::vector<int64_t> snapshot_examples;             // of validation; empty without snapshots
  std::shared_ptr<const tasks::Objective> objective;  // what training minimises
  RunFolder folder;              // after all that can refuse the recipe: a refused start leaves no folder
  KeptCheckpoints last_weights;  // train.average_last
  StepOptions step_options;
  std::optional<PassGraphs> graphs;
  std::optional<MetricsWriter> metrics;  // of the first rank
  std::optional<GradientBuckets> buckets;
  CheckpointInfo info;   // where the run stands
  bool saved = false;    // whether last.safetensors stands there too
  bool stepped = false;  // whether a step has come to its end
  bool stopped = false;  // with ranks: whether they have agreed to stop

 private:
  void resume();
  void join_ranks();
  Ranks* ranks() const { return options.ranks; }
  bool writes() const { return !ranks() || ranks()->is_first(); }  // the files of the run
  // Which items of a batch are of which rank.
  ItemShares shares_of(int64_t items) const {
    return {.items = items, .micro_batch = step_options.micro_batch, .ranks = ranks()->size()};
  }
  // The numbers of the whole batch, of which `batch` is this rank's share; null when a rank has been told to
  // stop, for then all do.
  std::shared_ptr<StepShare> whole_of(const Batch& batch);
  // Whether a signal has asked for the end: this process alone, or any rank, which all ask together.
  bool is_stopped();
  RunningStep begin_step(const Batch& batch, std::shared_ptr<const StepShare> share);
  // told: whether the report is looked at; else it may be of this rank's part alone.
  StepReport finish_step(const RunningStep& step, bool told);
  // What was done since the last record, for the pace.
  struct Lap {
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    int64_t steps = 0, examples = 0;
  };
  void log_step(const StepReport& report, const Lap& lap);
  // Clears info.evaluation_pending, unless a signal cut the evaluation short: then it is repeated after
  // resuming.
  void evaluate_validation(Progress& progress);
  std::optional<Evaluation> evaluate_test(Progress& progress);
  // With what it is doing shown in the progress of the run.
  Evaluation evaluate_shown(Progress& progress, const char* doing, data::Split split,
                            EvaluationOptions settings);
  void save_last();
  bool is_recorded(const char* kind) const;  // at this step
  void save_snapshot_here();
  EvaluationOptions evaluation_options() const;
  // What is evaluated and kept: the average where there is one.
  AveragedWeights averaged() { return AveragedWeights(average ? &*average : nullptr); }
  bool out_of_patience() const {
    return recipe.train.patience > 0 && info.validations_since_best >= recipe.train.patience;
  }
  bool is_snapshot_due() const {
    return recipe.train.snapshot_every > 0 && is_due(recipe.train.snapshot_every);
  }
  bool is_due(int64_t every) const { return info.step % every == 0 || info.step == recipe.train.steps; }
};

}  // namespace edgewise::train
