// What run folders say, for the commands that compare, tabulate and report.
#pragma once

#include <edgewise/plot/svg_plot.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/recipe.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace edgewise::app {

struct TestFigures {
  double accuracy = 0, loss = 0;
  std::vector<double> density;              // layer by layer, head by head
  std::optional<double> bits;               // per character, of texts
  std::optional<double> precision, recall;  // of the chosen edges, for tasks that know the right ones
  double mean_density() const;
};

struct Run {
  std::string name;  // "edgewise" of runs/demo/edgewise, "listops 1" of runs/listops/1
  std::filesystem::path folder;
  train::Recipe recipe;
  train::Series loss, density, accuracy;  // over steps: training loss and mean density, validation accuracy
  train::Series bits;                     // per character in validation, of texts
  train::Series precision, recall;  // of the chosen edges in validation, for tasks that know the right ones
  std::vector<train::Series> head_densities;       // in training, one per layer and head
  std::vector<std::string> head_names;             // "layer 0, head 1"
  std::optional<TestFigures> test;                 // of the best checkpoint; none before the end, but
  bool is_best_look = false;                       // the best validation where the test set validates
  double best_validation = -1, best_density = -1;  // mean density in the same validation
  std::optional<double> best_bits;                 // per character in validation, of texts
  int64_t best_step = 0;
  int64_t validations_since_best = 0;
  int64_t steps = 0;               // the last that any record is of
  double examples_per_second = 0;  // median over the logged steps
  double peak_memory_mb = 0;
  // Whether its best weights are those of another run that it began with, and its figures that run's.
  bool is_its_start() const;
};

// Throws when the folder holds no run; `command` begins the message.
Run read_run(const std::string& folder, const std::string& command);

// The checkpoint of a run: `wanted` is best or last; empty: best, or last before there is a best.
std::string checkpoint_file(const std::filesystem::path& folder, const std::string& wanted,
                            const std::string& command);

// A number of a record; a list counts as its mean, nothing as -1.
double number_of(const train::MetricRecord& record, const char* name);

}  // namespace edgewise::app
