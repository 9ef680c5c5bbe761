#include "train/trainer_state.h"

namespace edgewise::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Batch next_batch(data::Prefetcher& batches) {
  RECORD_USER_SCOPE("wait for data");
  return batches.next();
}

}  // namespace

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
