// How far a run of a sweep has come, as its folder tells.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "sweep/sweep_file.h"

namespace edgewise::app {

enum class RunStage { kLeft, kBegun, kDone };

struct RunState {
  RunStage stage = RunStage::kLeft;
  int64_t step = 0;                       // the last that a record is of
  std::optional<double> accuracy;         // of the test
  std::optional<double> density;          // mean, of the test
  std::optional<double> best_validation;  // accuracy
};

// Throws when the folder holds a run of another recipe.
RunState state_of(const SweepRun& run, const std::filesystem::path& folder);

// The step of the last whole record, from the end of the file alone: for a run that is writing.
int64_t last_step(const std::filesystem::path& folder);

// Takes away what a finished run need not keep: checkpoints as the sweep says, and, where it does not keep
// all, TensorBoard's events, whose numbers metrics.jsonl has too.
void discard_weights(const SweepRun& run, const std::filesystem::path& folder);

}  // namespace edgewise::app
