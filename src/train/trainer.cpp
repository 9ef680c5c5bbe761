#include <edgewise/train/trainer.h>

#include <chrono>
#include <cmath>
#include <utility>

#include <torch/types.h>
#include <torch/utils.h>

#include <edgewise/data/batches.h>
#include <edgewise/data/prefetcher.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/optimizer.h>
#include <edgewise/train/progress.h>
#include <edgewise/train/step.h>
#include <edgewise/train/stop_signal.h>

#include "kernels/philox.h"
#include "train/memory.h"
#include "train/run_folder.h"

namespace edgewise::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Torch's generator (dropout) starts afresh at every step, so that a resumed run draws what the whole run
// would have drawn.
void seed_step(uint64_t seed, int64_t step) {
  constexpr uint32_t kNoLayer = 0xFFFFFFFF;  // attention's own dropout has the layers' numbers
  torch::manual_seed(
      kernels::stream_key(seed, static_cast<uint64_t>(step), kNoLayer, 0, 0, kernels::Purpose::kDropout));
}

}  // namespace

struct Trainer::State {
  State(Recipe recipe_, std::shared_ptr<const data::Dataset> dataset_, TrainerOptions options_);

  RunSummary run();

 private:
  StepReport train_step(const data::Batch& batch, int64_t step);
  void log_step(const StepReport& report, int64_t step, int64_t examples, double seconds);
  // False when a signal cut the evaluation short; it is then done first after resuming.
  bool evaluate_validation();
  std::optional<Evaluation> evaluate_test();
  EvaluationOptions evaluation_options() const;
  void save_last();
  bool evaluation_due() const;
  bool checkpoint_due() const;

 public:
  Recipe recipe;
  std::shared_ptr<const data::Dataset> dataset;
  TrainerOptions options;
  std::string recipe_toml;
  RunFolder folder;
  at::Device device;
  ClassifierPtr model;
  Optimizer optimizer;
  Schedule schedule;
  CheckpointInfo info;  // where the run stands
  MetricsWriter metrics;
  StepOptions step_options;
};

Trainer::State::State(Recipe recipe_, std::shared_ptr<const data::Dataset> dataset_, TrainerOptions options_)
    : recipe(std::move(recipe_)), dataset(std::move(dataset_)), options(std::move(options_)),
      recipe_toml(to_toml(recipe)), folder(open_run_folder(options.run_folder, recipe_toml, options.resume)) {}

RunSummary Trainer::State::run() {
  const auto start = Clock::now();
  const StopSignal signal;
  RunSummary summary;
  bool interrupted = false;
  if (info.evaluation_pending) interrupted = !evaluate_validation();
  {
    data::BatchOrder order(dataset->size(data::Split::kTrain), recipe.train.batch, recipe.train.seed);
    data::Prefetcher batches(
        [&](int64_t step) { return dataset->batch(data::Split::kTrain, order.indices(step)); }, info.step,
        recipe.train.steps);
    while (!interrupted && info.step < recipe.train.steps) {
      const auto step_start = Clock::now();
      const data::Batch batch = batches.next();
      const StepReport report = train_step(batch, info.step);
      ++info.step;
      if (log_due()) log_step(report, batch.size(), seconds_since(step_start));
      if (evaluation_due()) info.evaluation_pending = !evaluate_validation();
      if (options.after_step) options.after_step(info.step);
      interrupted = StopSignal::requested();
      if (interrupted || checkpoint_due()) save_last();
    }
  }
