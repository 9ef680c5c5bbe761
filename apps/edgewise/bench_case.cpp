#include "bench_case.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <edgewise/train/metrics.h>

#include <iostream>

namespace edgewise::app {

CaseReport::CaseReport(bool json)
    : json_(json),
      table_({"case", "n", "dim", "density", "dtype", "edgewise ms", "spread", "dense ms", "spread",
              "speedup", "of the best"}) {}

void CaseReport::add(const BenchCase& found) {
  const auto per_second = [&](const Timing& timing) { return found.tokens / timing.median_ms * 1e3; };
  if (json_) {
    train::MetricRecord record = {{"case", found.name},
                                  {"n", found.n},
                                  {"dim", found.dim},
                                  {"density", found.density},
                                  {"dtype", found.dtype},
                                  {"edgewise_ms", found.mine.median_ms},
                                  {"dense_ms", found.dense.median_ms},
                                  {"speedup", found.speedup()},
                                  {"threads", int64_t{at::get_num_threads()}},
                                  {"edgewise_spread", found.mine.spread},
                                  {"dense_spread", found.dense.spread},
                                  {"edgewise_best_ms", found.mine.best_ms},
                                  {"dense_best_ms", found.dense.best_ms}};
    if (found.tokens > 0) {
      record.push_back({"edgewise_tokens_per_s", per_second(found.mine)});
      record.push_back({"dense_tokens_per_s", per_second(found.dense)});
    }
    std::cout << train::to_json_line(record) << std::endl;
  } else if (found.tokens > 0) {
    std::cout << found.name << ": " << fixed(per_second(found.mine), 0) << " tokens/s, dense "
              << fixed(per_second(found.dense), 0) << "\n";
  }
  table_.add({found.name, std::to_string(found.n), std::to_string(found.dim), percent(found.density, 1),
              found.dtype, fixed(found.mine.median_ms, 3), percent(found.mine.spread, 0),
              fixed(found.dense.median_ms, 3), percent(found.dense.spread, 0), fixed(found.speedup(), 2),
              fixed(found.dense.best_ms / found.mine.best_ms, 2)});
}

void CaseReport::print() const {
  if (!json_) table_.print(std::cout);
}

Cell case_cell(CaseReport& report, const CaseCoordinates& at, std::function<BenchCase()> measure) {
  return {{{"n", std::to_string(at.n)},
           {"dim", std::to_string(at.dim)},
           {"density", percent(at.density, 1)},
           {"dtype", at.dtype}},
          [&report, measure = std::move(measure)] {
            const BenchCase found = measure();
            return [&report, found] { report.add(found); };
          }};
}

at::ScalarType bench_dtype(const std::string& name) {
  if (name == "fp32") return at::kFloat;
  if (name == "fp64") return at::kDouble;
  if (name == "bf16") return at::kBFloat16;
  TORCH_CHECK_VALUE(false, "bench: expected dtype fp32, fp64 or bf16; got '", name, "'");
}

}  // namespace edgewise::app
