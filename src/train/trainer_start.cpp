// How a training run begins: what is checked, what is made, where an earlier one or other ranks stand.
#include "train/trainer_state.h"

namespace edgewise::train {
namespace {

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

}  // namespace

at::Device parse_device(const std::string& name, const std::string& choose_cpu) {
  const at::Device device(name);
  TORCH_CHECK_VALUE(!device.is_cuda() || torch::cuda::is_available(), "expected a GPU for the device '", name,
                    "'; torch sees none. Use ", choose_cpu);
  return device;
}

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

}  // namespace edgewise::train
