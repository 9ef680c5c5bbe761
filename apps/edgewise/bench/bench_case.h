// What every comparison with dense attention prints: one row of a table or one JSON object, same names for
// all.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "bench/bench.h"
#include "bench/bench_cells.h"
#include "table.h"

namespace edgewise::app {

struct BenchCase {
  std::string name;  // "forward", "step", ...
  int64_t n = 0, dim = 0;
  double density = 0;
  std::string dtype;
  Timing mine, dense;
  double tokens = 0;  // per repeat; 0 = none to count
  int64_t batch = 0;  // sequences; 0 = not said
  std::string device = {};
  double asked = 0;     // the density that was asked for; 1 = as the model starts, 0 = not said
  int64_t threads = 0;  // 0 = as many as torch has now

  double speedup() const { return dense.median_ms / mine.median_ms; }
};

// Prints JSON at once, collects table rows until print().
class CaseReport {
 public:
  explicit CaseReport(bool json);
  void add(const BenchCase& found);
  void read(const std::string& path);  // adds the lines that `bench train --json` wrote
  void print() const;
  // Time over that of dense attention, over n: a panel for each name, a line for each density.
  void plot(const std::string& path) const;

 private:
  bool json_;
  bool reading_ = false;  // rows of before
  Table table_;
  std::vector<BenchCase> cases_;
};

// The cell of one row: its name, and a measurement whose row is added to the report.
struct CaseCoordinates {
  std::string dtype;
  int64_t dim = 0, n = 0;
  double density = 0;
};
Cell case_cell(CaseReport& report, const CaseCoordinates& at, std::function<BenchCase()> measure);

// "fp32", "fp64", "bf16".
at::ScalarType bench_dtype(const std::string& name);

}  // namespace edgewise::app
