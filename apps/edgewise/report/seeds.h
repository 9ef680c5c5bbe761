// Runs that differ in nothing but their seed, as one.
#pragma once

#include <string>
#include <vector>

#include "runs.h"

namespace edgewise::app {

struct Spread {
  double mean = 0, deviation = 0;  // deviation: of a sample; 0 of a single value
  size_t count = 0;
};
Spread spread_of(const std::vector<double>& values);

// "39.93 ± 0.77 (3)", or "39.93" of a single value.
std::string show(const Spread& spread, int digits = 2);

// What tells groups of runs apart: the recipe without its seed, and without where and how often (paths,
// device, threads, intervals, patience, micro-batches).
std::string recipe_but_seed(const Run& run);

// In the order of each group's first run.
std::vector<std::vector<Run>> by_seed(const std::vector<Run>& runs);

// "edge-credit" of "edge-credit-0", "edge-credit-1"; a single run keeps its name.
std::string group_name(const std::vector<Run>& group);

// The mean curve of a group over the steps that all of its runs have; `curve` picks it.
train::Series mean_curve(const std::vector<Run>& group, train::Series Run::*curve);

}  // namespace edgewise::app
