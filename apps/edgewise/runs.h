// What run folders say, for the commands that compare, tabulate and report.
#pragma once

#include <edgewise/plot/svg_plot.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/recipe.h>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace edgewise::app {

struct TestFigures {
  double accuracy = 0, loss = 0;            // accuracy: or what the run is judged by in its place
  std::vector<double> density;              // layer by layer, head by head
  std::vector<double> valid_density;        // of valid pairs, where density counts padding and it was told
  std::optional<double> valid_pairs;        // share of all pairs, where something is padded or masked
  std::optional<double> bits;               // per character or byte, of texts
  std::optional<double> right;              // share of tokens, of texts
  std::optional<double> precision, recall;  // of the chosen edges, for tasks that know the right ones
  double mean_density() const;
};

struct Run {
  std::string name;              // "edgewise" of runs/demo/edgewise, "listops 1" of runs/listops/1
  std::filesystem::path folder;  // of a run in a file of runs: FILE:NAME, which no folder has
  train::Recipe recipe;
  std::string data;  // name and sizes of its data as it noted them, one line of JSON; empty: it did not
  train::Series loss, density, accuracy;  // over steps: training loss and mean density, validation accuracy
  train::Series bits;                     // per character in validation, of texts
  train::Series precision, recall;  // of the chosen edges in validation, for tasks that know the right ones
  std::vector<train::Series> head_densities;          // in training, one per layer and head
  std::vector<std::string> head_names;                // "layer 0, head 1"
  std::optional<TestFigures> test;                    // of the best checkpoint; none before the end, but
  bool is_best_look = false;                          // the best validation where the test set validates
  static constexpr double kNone = -2;                 // below any accuracy and any correlation
  double best_validation = kNone, best_density = -1;  // mean density in the same validation
  std::string judged_by = "accuracy";                 // what the test's figure is
  std::string validated_by = "accuracy";  // what the validations' are: another where a test translates
  std::string bits_of = "character";      // what bits are counted by
  std::optional<double> best_bits;        // per character in validation, of texts
  int64_t best_step = 0;
  int64_t validations_since_best = 0;
  int64_t steps = 0;               // the last that any record is of
  double examples_per_second = 0;  // median over the logged steps
  double peak_memory_mb = 0;
  std::optional<double> step_ms;  // of a training step, measured alone (`sweep --time`)
  // Whether its best weights are those of another run that it began with, and its figures that run's.
  bool is_its_start() const;
  bool is_validated() const { return best_validation > kNone; }
};

// Throws when the folder holds no run; `command` begins the message.
Run read_run(const std::string& folder, const std::string& command);

// What `sweep --time` writes into a run folder, one JSON object.
inline constexpr const char* kStepFile = "step.json";

// Which runs of those that were named a command takes.
struct RunChoice {
  std::vector<std::string> places;  // run folders, folders of them, and files of runs (tools/pack-runs)
  std::string only, leave_out;      // regular expressions over the names of runs; empty: no choice by them
};
void add_run_choice(CLI::App& command, RunChoice& choice);
// The runs of one place: one of a folder, all of a file.
bool is_run_file(const std::string& place);
std::vector<Run> read_run_file(const std::string& file, const std::string& command);
// Of a run folder, a folder of run folders (a sweep's) or a file of runs. What is no run is told on stderr.
std::vector<Run> read_place(const std::string& place, const std::string& command);
bool is_chosen(const Run& run, const RunChoice& choice);

// The checkpoint of a run: `wanted` is mean, best or last; empty: the mean where there is one, which was
// tested; else best, or last before there is a best.
std::string checkpoint_file(const std::filesystem::path& folder, const std::string& wanted,
                            const std::string& command);

// A figure as it is shown: a loss as it is, everything else in percent.
std::string shown_figure(const std::string& name, double value);

// A number of a record; a list counts as its mean, nothing as -1.
double number_of(const train::MetricRecord& record, const char* name);

}  // namespace edgewise::app
