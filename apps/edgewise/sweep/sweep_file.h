// A sweep: recipes x seeds x settings, one TOML file. What it says, resolved into runs in the order in which
// they are wanted.
//
//   runs = "runs/listops"           # the folder of the run folders; default runs/<name of the file>
//   seeds = [0, 1, 2]
//   weights = "none"                # of finished runs: all, best, first or none
//   [set]                           # keys of every recipe
//   train.device = "cuda"
//   [[row]]
//   name = "dense"
//   recipe = "../listops/dense.toml"            # from the folder of this file
//   stage = 1                                   # all runs of stage 1 come before those of stage 2
//   set.train.learning_rate = [5e-4, 1e-3]      # a list makes one row of each value
#pragma once

#include <edgewise/train/recipe.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace edgewise::app {

// What finished runs keep of their weights.
enum class KeptWeights {
  kAll,    // what training leaves
  kBest,   // the best checkpoint
  kFirst,  // the best checkpoint of a row's first seed
  kNone
};

struct SweepRun {
  std::string name;  // of its folder: ROW-SEED
  std::string row;
  int64_t seed = 0;
  std::filesystem::path recipe_file;
  std::vector<std::string> overrides;  // for --set
  train::Recipe recipe;                // resolved
  bool keeps_best = false, keeps_all = false;
};

struct Sweep {
  std::filesystem::path folder;   // of the run folders
  std::vector<std::string> rows;  // in the order of the file
  std::vector<SweepRun> runs;     // by stage, then seed, then row
};

// `overrides` beat the file, but for seeds. Throws on anything unknown or inconsistent, in the file and in
// its recipes, naming file and row.
Sweep load_sweep(const std::filesystem::path& file, const std::vector<std::string>& overrides = {});

}  // namespace edgewise::app
