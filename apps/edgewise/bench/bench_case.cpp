#include "bench/bench_case.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/plot/svg_plot.h>
#include <edgewise/train/metrics.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iostream>

namespace edgewise::app {
namespace {

// The member of `items` with this name, added where there is none yet.
template <typename Item, typename Name>
Item& named(std::vector<Item>& items, Name Item::*name, const std::string& wanted) {
  const auto found = std::ranges::find(items, wanted, name);
  if (found != items.end()) return *found;
  items.emplace_back().*name = wanted;
  return items.back();
}

// "train recipes/lra/listops/sbm.toml (graphs)" -> "sbm.toml (graphs)": what fits above a panel.
std::string short_name(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

// Learned densities come out a little below the one that was asked for; rows that do not say which that was
// are rounded: 0.95 % and 0.94 % are one line.
std::string line_of(const BenchCase& found) {
  if (found.asked > 0 && found.asked < 1) return percent(found.asked, found.asked < 0.01 ? 2 : 0);
  return percent(found.density, found.density < 0.005 ? 1 : 0);
}

}  // namespace

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
                                  {"threads", found.threads ? found.threads : int64_t{at::get_num_threads()}},
                                  {"edgewise_spread", found.mine.spread},
                                  {"dense_spread", found.dense.spread},
                                  {"edgewise_best_ms", found.mine.best_ms},
                                  {"dense_best_ms", found.dense.best_ms}};
    if (!found.device.empty()) record.push_back({"device", found.device});
    if (found.batch > 0) record.push_back({"batch", found.batch});
    if (found.asked > 0) record.push_back({"density_asked", found.asked});
    if (found.tokens > 0) {
      record.push_back({"edgewise_tokens_per_s", per_second(found.mine)});
      record.push_back({"dense_tokens_per_s", per_second(found.dense)});
    }
    std::cout << train::to_json_line(record) << std::endl;
  } else if (found.tokens > 0 && !reading_) {
    std::cout << found.name << ", n = " << found.n << ", " << percent(found.density, 1) << ": "
              << fixed(per_second(found.mine), 0) << " tokens/s, dense " << fixed(per_second(found.dense), 0)
              << "\n";
  }
  table_.add({found.name, std::to_string(found.n), std::to_string(found.dim), percent(found.density, 1),
              found.dtype, fixed(found.mine.median_ms, 3), percent(found.mine.spread, 0),
              fixed(found.dense.median_ms, 3), percent(found.dense.spread, 0), fixed(found.speedup(), 2),
              fixed(found.dense.best_ms / found.mine.best_ms, 2)});
  cases_.push_back(found);
}

void CaseReport::read(const std::string& path) {
  std::ifstream file(path);
  reading_ = true;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const auto values = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (line.empty()) continue;
    const bool is_row =
        values.is_object() &&
        std::ranges::all_of(
            std::initializer_list<const char*>{"n", "dim", "density", "edgewise_ms", "edgewise_spread",
                                               "edgewise_best_ms", "dense_ms", "dense_spread",
                                               "dense_best_ms"},
            [&](const char* key) { return values.contains(key) && values[key].is_number(); }) &&
        values.value("case", nlohmann::json()).is_string() &&
        values.value("dtype", nlohmann::json()).is_string();
    TORCH_CHECK_VALUE(
        is_row, "bench train --from: expected the lines that `edgewise bench train --json` wrote; line ",
        number, " of ", path, " is '", line.substr(0, 80), "'");
    const auto timing = [&](const std::string& whose) {
      return Timing{.median_ms = values.at(whose + "_ms"),
                    .spread = values.at(whose + "_spread"),
                    .best_ms = values.at(whose + "_best_ms")};
    };
    BenchCase found{values.at("case"),  values.at("n"),     values.at("dim"), values.at("density"),
                    values.at("dtype"), timing("edgewise"), timing("dense")};
    found.tokens = values.value("edgewise_tokens_per_s", 0.0) * found.mine.median_ms * 1e-3;
    found.batch = values.value("batch", int64_t{0});
    found.device = values.value("device", "");
    found.threads = values.value("threads", int64_t{0});
    found.asked = values.value("density_asked", 0.0);
    add(found);
  }
  TORCH_CHECK_VALUE(number > 0, "bench train --from: expected rows in ", path, "; it is empty");
}

void CaseReport::print() const {
  if (!json_) table_.print(std::cout);
}

void CaseReport::plot(const std::string& path) const {
  TORCH_CHECK_VALUE(!cases_.empty(), "bench: expected cases to plot; found none");
  std::vector<train::Panel> panels;
  double highest = 1;
  std::vector<BenchCase> cases = cases_;
  std::ranges::stable_sort(cases, {}, &BenchCase::n);
  for (const BenchCase& found : cases) {
    train::Panel& panel = named(panels, &train::Panel::title, short_name(found.name));
    train::Series& series = named(panel.series, &train::Series::name, line_of(found));
    series.marks = train::Marks::kLineAndPoints;
    series.x.push_back(static_cast<double>(found.n));
    series.y.push_back(1 / found.speedup());
    highest = std::max(highest, series.y.back());
  }
  for (train::Panel& panel : panels) {
    panel.x_label = "n";
    panel.y_label = "time / dense attention";
    panel.log_x = true;
    panel.y_range = {0, highest * 1.05};
    panel.reference_lines.push_back({1, "dense"});
  }
  io::write_file_atomically(path, train::render_svg(panels));
  std::cerr << "plot: " << path << "\n";
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
