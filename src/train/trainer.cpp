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
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The exact penalty is over valid pairs; only the sampled one may count padding.
bool counts_padding(const Recipe& recipe) {
  if (!attention_kind(recipe).reads("sbm")) return false;
  const SbmEdgesOptions options = sbm_options(recipe);
  return options.count_padding && options.density_penalty == DensityPenalty::kSampled;
}

void check_graphs(const Recipe& recipe, const tasks::Task& task) {
  if (!recipe.train.cuda_graph) return;
  const std::string reason = pass_graphs_refusal(recipe, task);
  TORCH_CHECK_VALUE(reason.empty(), "train: expected a recipe that train.cuda_graph can serve; ", reason);
}

// Before anything is made or trained: an empty validation would be found at the first evaluation only.
void check_splits(const data::Dataset& dataset) {
  for (const data::Split split : {data::Split::kTrain, data::Split::kValidation, data::Split::kTest})
    TORCH_CHECK_VALUE(dataset.size(split) > 0, "train: expected examples in every split of ", dataset.name(),
                      "; its ", data::to_string(split), " split has none");
}

// First of all: the run folder notes how many there are.
void use_threads(const Recipe& recipe) {
  if (recipe.train.threads > 0) at::set_num_threads(static_cast<int>(recipe.train.threads));
}

// A run that goes on from a checkpoint of its own needs no others; nor does who is told them by another rank.
bool has_own_weights(const TrainerOptions& options) {
  if (options.ranks && !options.ranks->is_first()) return true;
  return options.resume && file_exists(RunFolder{.root = options.run_folder}.last());
}

// The first rank alone reads and writes it.
RunFolder folder_of(const TrainerOptions& options, const std::string& recipe_toml) {
  if (options.ranks && !options.ranks->is_first()) return {.root = options.run_folder};
  return open_run_folder(options.run_folder, recipe_toml, options.resume);
}

at::Device device_of(const Recipe& recipe, Ranks* ranks) {
  const at::Device device = parse_device(recipe.train.device);
  return ranks ? ranks->take_device(recipe.train.device) : device;
}

// Passes are no longer than a rank's share of the batch.
int64_t micro_batch_of(const Recipe& recipe, const Ranks* ranks) {
  if (recipe.train.batch_tokens > 0) return 0;
  if (!ranks) return recipe.train.micro_batch;
  return std::min(recipe.train.micro_batch, recipe.train.batch / ranks->size());
}

Batch next_batch(data::Prefetcher& batches) {
  RECORD_USER_SCOPE("wait for data");
  return batches.next();
}

}  // namespace

at::Device parse_device(const std::string& name, const std::string& choose_cpu) {
  const at::Device device(name);
  TORCH_CHECK_VALUE(!device.is_cuda() || torch::cuda::is_available(), "expected a GPU for the device '", name,
                    "'; torch sees none. Use ", choose_cpu);
  return device;
}

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
    Clock::time_point start = Clock::now();
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

Trainer::State::State(Recipe recipe_, tasks::TaskPtr task_, TrainerOptions options_)
    : recipe(std::move(recipe_)),
      task(std::move(task_)),
      options(std::move(options_)),
      recipe_toml(to_toml(recipe)),
      device(
          (use_threads(recipe), check_ranks(recipe, *task, options.ranks), device_of(recipe, options.ranks))),
      model((check_splits(task->data()), check_graphs(recipe, *task),
             first_model(recipe, *task, has_own_weights(options), adopted))),
      optimizer((model->to(device), *model), optimizer_options(recipe.train)),
      schedule({.kind = parse_schedule(recipe.train.schedule),
                .peak = recipe.train.learning_rate,
                .steps = recipe.train.steps,
                .warmup = recipe.train.warmup_steps,
                .initial = recipe.train.initial_rate}),
      snapshot_examples(examples_of_snapshots(recipe, task->data())),
      objective(task->smoothed_objective(recipe.train.label_smoothing)),
      folder(folder_of(options, recipe_toml)),
      last_weights(folder.root, recipe.train.average_last),
      step_options({.objective = objective.get(),
                    .micro_batch = micro_batch_of(recipe, options.ranks),
                    .density_weight = recipe.train.density_weight,
                    .count_padding = counts_padding(recipe),
                    .device = device,
                    .precision = parse_precision(recipe.train.precision),
                    .edge_samples = recipe.train.edge_samples}) {
  if (writes()) metrics.emplace(folder.root);
  if (recipe.train.average > 0) average.emplace(*model, recipe.train.average);
  if (recipe.train.cuda_graph) step_options.graphs = &graphs.emplace();
  info.recipe = recipe_toml;
  info.evaluation_pending = !adopted.empty();  // what the weights are worth, before they are changed
  if (writes()) {
    if (options.resume) resume();
    check_data(folder, task->data());
    check_reader(folder, task->data());
  }
  if (ranks()) join_ranks();
}

// All begin where the first stands.
void Trainer::State::join_ranks() {
  share_weights(*ranks(), *model);
  share_run(*ranks(), optimizer, average ? &*average : nullptr, info, saved);
  if (!info.memories.empty()) {
    const ItemShares shares = shares_of(recipe.train.batch);
    for (at::Tensor& memory : info.memories) memory = shares.rows_of(ranks()->rank(), memory.to(device));
  }
  buckets.emplace(*ranks(), *model);
}

void Trainer::State::resume() {
  if (file_exists(folder.data())) check_data(folder, task->data());  // before anything is written
  if (file_exists(folder.reader())) check_reader(folder, task->data());
  // A run killed before its first checkpoint starts again from nothing.
  check_has_weights(folder, load_recipe(folder.config()).train.checkpoint_every);  // as it was until now
  if (file_exists(folder.last())) {
    info = load_checkpoint(folder.last(), *model, &optimizer);
    task->check_model(*model);
    for (at::Tensor& memory : info.memories) memory = memory.to(device);
    if (average) average->load_state(std::exchange(info.averages, {}));
    saved = true;
  } else {
    metrics->truncate_after(-1);
  }
  if (recipe.train.average_last > 0) last_weights.forget_after(info.step);
  // The mean of weights at a former end is not this run's any more.
  if (info.step < recipe.train.steps) std::filesystem::remove(folder.mean());
  info.recipe = recipe_toml;
  TORCH_CHECK_VALUE(info.step <= recipe.train.steps, "train: expected train.steps of at least ", info.step,
                    ", which ", folder.root.string(), " has done already; got ", recipe.train.steps);
  write_description(folder, recipe_toml);
  metrics->truncate_after(info.step);
  // train.steps was moved to where the run stands: the validation of the last step is due.
  if (info.step == recipe.train.steps && !is_recorded("eval")) info.evaluation_pending = true;
}

std::shared_ptr<StepShare> Trainer::State::whole_of(const Batch& batch) {
  RECORD_USER_SCOPE("agree on a step");
  constexpr size_t kMostTowers = 2;
  auto share = std::make_shared<StepShare>(count_share(batch, step_options));
  std::vector<double> pairs = share->pairs;
  pairs.resize(kMostTowers);
  at::Tensor sum = at::tensor({static_cast<double>(StopSignal::requested()),
                               static_cast<double>(share->items), share->targets, pairs[0], pairs[1]},
                              at::kDouble);
  ranks()->sum(sum, "step " + std::to_string(info.step));
  const double* const all = sum.const_data_ptr<double>();
  if (all[0] > 0) return nullptr;
  share->items = static_cast<int64_t>(all[1]);
  share->targets = all[2];
  share->pairs.assign(all + 3, all + 3 + batch.towers.size());
  for (const ItemShares::Part& part : shares_of(share->items).parts(ranks()->rank()))
    share->first_items.push_back(part.first);
  share->ranks = ranks();
  share->before_last_pass = [this] { buckets->listen(); };
  return share;
}

bool Trainer::State::is_stopped() {
  if (!ranks() || stopped) return ranks() ? stopped : StopSignal::requested();
  at::Tensor signals = at::full({1}, static_cast<double>(StopSignal::requested()), at::kDouble);
  ranks()->sum(signals, "the end of training");
  return stopped = signals.item<double>() > 0;
}

RunningStep Trainer::State::begin_step(const Batch& batch, std::shared_ptr<const StepShare> share) {
  const RandomStream random{.seed = static_cast<uint64_t>(recipe.train.seed),
                            .step = static_cast<uint64_t>(info.step),
                            .layer = 0,
                            .first_item = 0};
  optimizer.zero_grad();
  step_options.density_weight = RisingWeight{.whole = recipe.train.density_weight,
                                             .start = recipe.train.density_start,
                                             .warmup = recipe.train.density_warmup}
                                    .at(info.step);
  step_options.share = share.get();
  PendingReport report = begin_gradients(*model, batch, step_options, random, &info.memories);
  if (buckets) buckets->sum();
  RECORD_USER_SCOPE("optimizer");
  optimizer.add_l2(recipe.train.l2);
  const at::Tensor norm = optimizer.gradient_norm();
  HostCopy host_norm(norm);
  optimizer.step(schedule.at(info.step), norm, recipe.train.grad_clip);
  model->after_step();
  if (average) average->update(info.step + 1);
  return {std::move(report), std::move(host_norm), batch, random, std::move(share)};
}

// A step whose loss or gradient was not finite fails here; with such a gradient it has left the parameters
// alone.
StepReport Trainer::State::finish_step(const RunningStep& step, bool told) {
  step_options.share = step.share.get();
  StepReport report = step.report.read();
  check_gradient_norm(*model, step.norm.get().item<double>(), step.batch, step_options, step.random);
  stepped = true;
  if (ranks() && told) report = sum_reports(report, step_options.density_weight, *ranks());
  return report;
}

void Trainer::State::log_step(const StepReport& report, const Lap& lap) {
  RECORD_USER_SCOPE("log");
  const double seconds = seconds_since(lap.start);
  MetricRecord record = {
      {"kind", "train"}, {"step", info.step}, {"loss", report.loss}, {"task_loss", report.task_loss}};
  if (task->metric().counts_right) record.emplace_back("accuracy", report.accuracy);
  record.insert(record.end(), {{"learning_rate", schedule.at(info.step - 1).learning_rate},
                               {"density", values_of(report.density)},
                               {"density_mean", report.density.mean().item<double>()},
                               {"edges", report.edges},
                               {"time_examples_per_s", static_cast<double>(lap.examples) / seconds},
                               {"time_edges_per_s", static_cast<double>(report.edges * lap.steps) / seconds},
                               {"memory_peak_mb", peak_memory_mb(device)}});
  add_metric(record, task->metric(), report.task_loss, report.accuracy);
  if (report.extra_loss != 0) record.emplace_back("extra_loss", report.extra_loss);
  if (report.policy) {
    record.insert(record.end(), {{"reward", report.policy->reward},
                                 {"reward_baseline", report.policy->baseline},
                                 {"policy_entropy", report.policy->entropy},
                                 {"policy_log_prob", report.policy->log_prob},
                                 {"policy_gradient_variance", report.policy->gradient_variance}});
  }
  metrics->write(record);
}

EvaluationOptions Trainer::State::evaluation_options() const {
  EvaluationOptions result;
  result.batch_size = recipe.train.micro_batch > 0 ? recipe.train.micro_batch : recipe.train.batch;
  result.seed = static_cast<uint64_t>(recipe.train.seed);
  result.draws = recipe.train.eval_draws;
  result.count_padding = density_counts_padding(recipe);
  result.device = device;
  result.precision = step_options.precision;
  result.stop = [] { return StopSignal::requested(); };
  result.ranks = ranks();
  return result;
}

Evaluation Trainer::State::evaluate_shown(Progress& progress, const char* doing, data::Split split,
                                          EvaluationOptions settings) {
  settings.progress = [&](int64_t done, int64_t total) { progress.update_phase(done, total); };
  progress.begin_phase(doing);
  Evaluation found = evaluate(*model, *task, split, settings);
  progress.end_phase();
  return found;
}

void Trainer::State::evaluate_validation(Progress& progress) {
  RECORD_USER_SCOPE("evaluation");
  const bool repeated = std::exchange(info.evaluation_pending, true);
  const AveragedWeights weights = averaged();
  EvaluationOptions settings = evaluation_options();
  settings.max_examples = recipe.train.eval_batches * settings.batch_size;  // 0 = all
  const Evaluation found = evaluate_shown(progress, "validating", data::Split::kValidation, settings);
  if (!found.complete) return;
  if (writes() && KeptCheckpoints::wants(recipe.train, info.step)) last_weights.add(*model, info);
  if (writes() && (!repeated || !is_recorded("eval")))
    metrics->write(evaluation_record("eval", info.step, data::Split::kValidation, found));
  const bool is_kept = take_score(recipe.train.keep, found, info);
  info.evaluation_pending = false;
  if (is_kept && writes()) save_checkpoint(folder.best(), *model, nullptr, info);
  progress.message(validation_line(info.step, found));
}

// The graphs of a few validation examples, as they are at this step.
void Trainer::State::save_snapshot_here() {
  if (!writes()) return;
  RECORD_USER_SCOPE("snapshot");
  const AveragedWeights weights = averaged();
  const Snapshot snapshot = take_snapshot(*model, task->data(),
                                          {.step = info.step,
                                           .examples = snapshot_examples,
                                           .seed = static_cast<uint64_t>(recipe.train.seed),
                                           .device = device,
                                           .precision = step_options.precision,
                                           .is_causal = task_kind(recipe).is_causal});
  TORCH_CHECK_VALUE(!std::filesystem::is_symlink(folder.snapshots()), "train: expected ",
                    folder.snapshots().string(),
                    " to be a folder of this run; it is a link to another place. Remove it");
  std::filesystem::create_directories(folder.snapshots());
  save_snapshot(folder.snapshot(info.step), snapshot);
}

void Trainer::State::save_last() {
  RECORD_USER_SCOPE("checkpoint");
  CheckpointInfo whole = info;
  if (ranks()) {
    expect_same_weights(*ranks(), *model);
    const ItemShares shares = shares_of(recipe.train.batch);
    for (at::Tensor& memory : whole.memories)
      memory = shares.in_order(ranks()->gather_rows(memory, "gathering what the model remembers"));
  }
  saved = true;
  if (!writes()) return;
  if (average) whole.averages = average->state();
  save_checkpoint(folder.last(), *model, &optimizer, whole);
}

std::optional<Evaluation> Trainer::State::evaluate_test(Progress& progress) {
  RECORD_USER_SCOPE("evaluation");
  if (writes()) {
    if (recipe.train.average_last > 0) last_weights.save_mean(folder.mean());
    load_checkpoint(recipe.train.average_last > 0 ? folder.mean() : folder.best(), *model);
  }
  if (ranks()) share_weights(*ranks(), *model);
  EvaluationOptions settings = evaluation_options();
  settings.count_valid = true;
  settings.writes = true;
  const Evaluation found = evaluate_shown(progress, "testing", data::Split::kTest, settings);
  if (!found.complete) return std::nullopt;
  if (!writes()) return found;
  save_texts(folder.written(), found.texts);
  if (!is_recorded("test")) metrics->write(evaluation_record("test", info.step, data::Split::kTest, found));
  return found;
}

// What a run repeats after resuming (an evaluation that was cut short, the test of a run that had ended) may
// have been recorded already, just before a kill; it gives the same numbers, and once is enough.
bool Trainer::State::is_recorded(const char* kind) const {
  const auto has = [](const MetricRecord& record, const char* name, const MetricValue& value) {
    const MetricValue* found = find_metric(record, name);
    return found && *found == value;
  };
  const std::vector<MetricRecord> records = read_metrics(folder.metrics());
  return std::any_of(records.begin(), records.end(), [&](const MetricRecord& record) {
    return has(record, "kind", MetricValue(kind)) && has(record, "step", MetricValue(info.step));
  });
}

void Trainer::State::discard_unused() {
  if (!writes() || options.resume || stepped || file_exists(folder.last())) return;
  discard_run_folder(folder);
}

RunSummary Trainer::State::run() {
  const auto start = Clock::now();
  const StopSignal signal;
  Progress progress({.label = "train",
                     .total = recipe.train.steps,
                     .start = info.step,
                     .unit = "step",
                     .style = options.progress && writes() ? ProgressStyle::kAuto : ProgressStyle::kNone,
                     .plain_seconds = 10,
                     .transient = false,
                     .out = nullptr,
                     .clock = {}});
  model->train();
  if (!adopted.empty()) progress.message(adopted);
  if (info.evaluation_pending) {
    evaluate_validation(progress);
    if (is_snapshot_due() && !info.evaluation_pending) save_snapshot_here();
    save_last();
  } else if (info.step == 0 && is_snapshot_due()) {
    save_snapshot_here();
  }
  if (info.step < recipe.train.steps && !out_of_patience()) {
    const std::unique_ptr<data::Order> order =
        recipe.train.batch_tokens > 0
            ? task->training_order_by_tokens(recipe.train.batch_tokens,
                                             static_cast<uint64_t>(recipe.train.seed))
            : task->training_order(recipe.train.batch, static_cast<uint64_t>(recipe.train.seed));
    data::Prefetcher batches(
        [&](int64_t step) {
          std::vector<int64_t> indices = order->indices(step);
          if (ranks()) indices = shares_of(std::ssize(indices)).taken_from(indices, ranks()->rank());
          if (indices.empty()) return Batch();
          Batch batch = task->data().batch(data::Split::kTrain, indices);
          return device.is_cuda() ? pinned(batch) : batch;
        },
        info.step, recipe.train.steps);
    // A GPU is at one step while the host prepares the next; it is waited for where its numbers are needed.
    std::optional<RunningStep> running;
    Lap lap;
    while (info.step < recipe.train.steps && !out_of_patience() && (ranks() || !StopSignal::requested())) {
      const Batch batch = next_batch(batches);
      const std::shared_ptr<const StepShare> share = ranks() ? whole_of(batch) : nullptr;
      if (ranks() && !share) {
        stopped = true;
        break;
      }
      if (order->is_beginning(info.step)) info.memories.clear();
      std::optional<RunningStep> step;
      try {
        step.emplace(begin_step(batch, share));
      } catch (...) {
        if (running) finish_step(*running, /*told=*/false);  // what went wrong first is what to report
        throw;
      }
      if (running) finish_step(*running, /*told=*/false);
      running = std::move(step);
      ++info.step;
      ++lap.steps;
      lap.examples += share ? share->items : batch.size();
      saved = false;
      const bool logged = info.step == 1 || is_due(recipe.train.log_every);
      const bool evaluated = is_due(recipe.train.eval_every),
                 kept = evaluated || is_due(recipe.train.checkpoint_every), pictured = is_snapshot_due();
      if (device.is_cuda() && !logged && !kept && !pictured && !options.after_step) {
        progress.update(info.step);  // the numbers beside it stay those of the last step that was waited for
        continue;
      }
      const StepReport report = finish_step(*std::exchange(running, std::nullopt), /*told=*/true);
      if (logged && writes()) log_step(report, lap);
      progress.update(info.step, step_fields(report, task->metric()));
      if (evaluated) evaluate_validation(progress);
      // A signal that cut the validation short leaves the snapshot to whoever goes on.
      if (pictured && !info.evaluation_pending) save_snapshot_here();
      if (kept) save_last();
      if (options.after_step) options.after_step(info.step);
      if (logged || kept) lap = Lap();
    }
    if (running) finish_step(*running, /*told=*/false);  // before anything is saved
  }
  // Whenever the signal came: what it stopped is on disk.
  if (!saved) save_last();

  RunSummary summary;
  summary.run_folder = folder.root;
  summary.steps = info.step;
  if (!is_stopped()) summary.test = evaluate_test(progress);
  summary.interrupted = !summary.test.has_value();
  if (info.best_metric) summary.best = task->metric().of_score(*info.best_metric);
  summary.best_step = info.best_step;
  summary.seconds = seconds_since(start);
  if (summary.interrupted) {
    progress.message("stopped at step " + std::to_string(info.step) + "; saved " + folder.last());
  } else {
    if (out_of_patience() && info.step < recipe.train.steps)
      progress.message("no better validation since step " + std::to_string(info.best_step) +
                       ": train.patience ends the run at step " + std::to_string(info.step));
    progress.finish();
  }
  if (graphs) {
    const PassCounts counts = graphs->counts();
    progress.message("CUDA graphs: " + std::to_string(counts.recorded) + " shapes recorded, " +
                     std::to_string(counts.replayed) + " of " +
                     std::to_string(counts.replayed + counts.ordinary) + " passes replayed");
  }
  return summary;
}

Trainer::Trainer(Recipe recipe, tasks::TaskPtr task, TrainerOptions options)
    : state_(std::make_unique<State>(std::move(recipe), std::move(task), std::move(options))) {}
Trainer::Trainer(const Recipe& recipe, std::shared_ptr<const data::Dataset> dataset, TrainerOptions options)
    : Trainer(recipe, task_over(recipe, std::move(dataset)), std::move(options)) {}
Trainer::~Trainer() = default;

RunSummary Trainer::run() {
  try {
    return state_->run();
  } catch (...) {
    state_->discard_unused();
    throw;
  }
}
Model& Trainer::model() {
  return *state_->model;
}

}  // namespace edgewise::train
