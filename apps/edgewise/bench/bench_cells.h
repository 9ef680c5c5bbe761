// The cells of a benchmark, measured one after the other: stderr shows which one it is at, and the rows
// before a cell that fails are printed all the same.
#pragma once

#include <edgewise/train/progress.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/bench.h"

namespace edgewise::app {

struct Cell {
  train::ProgressFields name;     // {{"n", "2048"}, {"density", "25 %"}}
  std::function<Body()> measure;  // returns what keeps or prints the row, called when no bar is in the way
};

// Calls `print` after the last cell, or after the rows of those before one that fails, whose error goes on
// and names it.
void measure_cells(const std::string& command, const std::vector<Cell>& cells, const Body& print);

}  // namespace edgewise::app
