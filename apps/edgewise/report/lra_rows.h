// Runs of the Long Range Arena as rows of tables: what differs in its seed alone is one row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/seeds.h"
#include "runs.h"

namespace edgewise::app {

// In the order of the tables.
enum class LraFamily { kDense, kOther, kPublished, kPaper, kEdges, kSquares, kRandomEdges, kRandomSquares };

struct LraRow {
  size_t task = 0;   // of kLraTasks
  std::string name;  // what the names of its runs have in common
  LraFamily family = LraFamily::kDense;
  std::string attention;  // in words
  std::string kind;       // attention.kind
  std::string preset;     // of an SBM, else empty
  double penalty = 0;
  bool rises = false;  // the penalty, by train.density_start or density_warmup
  bool self_loops = false;
  int64_t steps = 0, planned_steps = 0, batch = 0;  // steps: the fewest that one of its runs made
  double average = 0;                               // train.average
  bool chosen_on_test = false, of_other_data = false, has_start = false, is_variation = false;
  std::string training;              // what rows of other penalties may share
  std::vector<std::string> remarks;  // what a reader must know of it
  // Of its runs, in one order; percent.
  std::vector<int64_t> seeds;
  std::vector<double> accuracy, validation;
  std::vector<double> valid_density, all_density;  // empty where a run does not tell
  std::vector<double> step_ms;                     // of the runs whose step was measured alone

  bool is_sbm() const { return !preset.empty(); }
  bool learns_edges() const {
    return family == LraFamily::kEdges || family == LraFamily::kSquares || family == LraFamily::kPublished ||
           family == LraFamily::kPaper;
  }
  bool is_random() const { return family == LraFamily::kRandomEdges || family == LraFamily::kRandomSquares; }
  bool has_squares() const { return family == LraFamily::kSquares || family == LraFamily::kRandomSquares; }
  // Over valid pairs, or, where that is not known, over all of them.
  std::optional<double> density() const;
  std::optional<double> step() const;  // mean, ms
};

// "0.01 rising + I": the weight of the density penalty.
std::string lambda_label(const LraRow& row);

// kLraTasks.size() of a run of another task.
size_t lra_task_of(const Run& run);

// What a reader must know of a run beside its figures.
std::vector<std::string> remarks_on(const Run& run);

// Rows in the order of the tables: by task, family, density. A seed that comes twice counts once, and runs
// without a test or with that of another run are left out; standard error tells.
std::vector<LraRow> lra_rows(const std::vector<Run>& runs);

// Whether two rows were trained for as long, on as many, and their checkpoints chosen in one way.
bool same_protocol(const LraRow& a, const LraRow& b);

}  // namespace edgewise::app
