// Trainer: runs a recipe in a run folder, from the first step or from its last checkpoint, bit for bit the
// same.
//
//   run folder: config.toml (resolved recipe), env.json, metrics.jsonl, TensorBoard events,
//               checkpoints/last.safetensors (model, optimiser, memory, step),
//               checkpoints/best.safetensors (model)
//
// A run whose first step fails takes its folder away again.
//
// Several processes train one run together, each on its share of every batch: all of them make a Trainer with
// the same recipe and their Ranks. The first one alone reads and writes the run folder. Edges and the order
// of batches are those of a single process, whatever the number of ranks, and so is ordinary dropout where
// train.micro_batch is at most the batch over the ranks.
#pragma once

#include <c10/core/Device.h>
#include <edgewise/models/model.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/ranks.h>
#include <edgewise/train/recipe.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>

namespace edgewise::train {

// A device by its name; throws when torch does not see it, and names the option that chooses another one.
at::Device parse_device(const std::string& name, const std::string& choose_cpu = "--set train.device=cpu");

struct TrainerOptions {
  std::filesystem::path run_folder;
  bool resume = false;    // continue what the folder holds; an empty folder starts afresh
  bool progress = false;  // progress on standard error
  std::function<void(int64_t steps)> after_step;  // called with the number of finished steps
  Ranks* ranks = nullptr;                         // null: this process trains alone
};

struct RunSummary {
  std::filesystem::path run_folder;
  int64_t steps = 0;           // finished
  bool interrupted = false;    // by SIGINT or SIGTERM; resume to continue
  std::optional<double> best;  // on validation, of the task's metric
  int64_t best_step = 0;
  std::optional<Evaluation> test;  // of the best checkpoint; absent when interrupted
  double seconds = 0;

  int exit_code() const { return interrupted ? 130 : 0; }
};

class Trainer {
 public:
  // Builds the model, then locks and opens the run folder; throws when a new run's folder is not empty, a
  // resumed one belongs to another recipe, or another Trainer, here or in another process, has the folder.
  Trainer(Recipe recipe, tasks::TaskPtr task, TrainerOptions options);
  // The task that the recipe names, over this data.
  Trainer(const Recipe& recipe, std::shared_ptr<const data::Dataset> dataset, TrainerOptions options);
  ~Trainer();

  RunSummary run();
  Model& model();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace edgewise::train
