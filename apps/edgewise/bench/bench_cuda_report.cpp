#include "bench/bench_cuda_report.h"

#include <c10/util/Exception.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/plot/svg_plot.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <set>

namespace edgewise::app {

CudaReport::CudaReport(bool json)
    : json_(json), table_({"case", "n", "dim", "clusters", "density", "edgewise ms", "dense ms", "ratio"}) {}

void CudaReport::add(CudaRow row) {
  if (json_)
    std::cout << "{\"case\": \"" << row.name << "\", \"n\": " << row.n << ", \"dim\": " << row.dim
              << ", \"clusters\": " << row.clusters << ", \"density\": " << row.density << ", \"dtype\": \""
              << row.dtype << "\", \"edgewise_ms\": " << row.ms << ", \"dense_ms\": " << row.dense_ms
              << ", \"ratio\": " << row.ms / row.dense_ms << (row.graph ? ", \"graph\": 1}" : "}")
              << std::endl;
  table_.add({row.name, std::to_string(row.n), std::to_string(row.dim),
              row.clusters ? std::to_string(row.clusters) : "-", percent(row.density, 1), fixed(row.ms, 3),
              fixed(row.dense_ms, 3), fixed(row.ms / row.dense_ms, 2)});
  rows_.push_back(std::move(row));
}

void CudaReport::read(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto values = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    TORCH_CHECK_VALUE(values.is_object(), "bench cuda: expected JSON objects, one to a line, in ", path,
                      "; got ", line);
    if (!values.contains("dense_ms")) continue;
    for (const char* name : {"case", "n", "dim", "clusters", "density", "edgewise_ms"})
      TORCH_CHECK_VALUE(values.contains(name),
                        "bench cuda: expected the lines that `bench cuda --json` wrote in ", path,
                        "; this one has no ", name, ": ", line);
    add({values.at("case"), values.at("n"), values.at("dim"), values.at("clusters"), values.at("density"),
         values.at("edgewise_ms"), values.at("dense_ms"), values.value("dtype", "bf16"),
         values.value("graph", 0) != 0});
  }
}

void CudaReport::add_memory(const MemoryRow& row) {
  constexpr double kMegabyte = 1024.0 * 1024.0;
  if (json_)
    std::cout << "{\"case\": \"peak memory of a training step\", \"n\": " << row.n << ", \"dim\": " << row.dim
              << ", \"clusters\": " << row.clusters << ", \"density\": " << row.density
              << ", \"edgewise_mb\": " << row.bytes / kMegabyte
              << ", \"published_mb\": " << row.published_bytes / kMegabyte << "}" << std::endl;
  memory_.push_back("peak memory of a training step, n = " + std::to_string(row.n) + ", dim " +
                    std::to_string(row.dim) + ", " + std::to_string(row.clusters) + " clusters, " +
                    percent(row.density, 1) + ": " + bytes(row.bytes) + ", published path " +
                    bytes(row.published_bytes) + " (" + fixed(row.published_bytes / row.bytes, 1) +
                    " times)");
}

void CudaReport::print() const {
  if (json_) return;
  table_.print(std::cout);
  for (const std::string& line : memory_) std::cout << line << "\n";
}

void CudaReport::plot(const std::string& path) const {
  TORCH_CHECK_VALUE(!rows_.empty(), "bench cuda: expected rows to plot; found none");
  std::set<int64_t> lengths, dims, clusters;
  std::set<double> densities;
  for (const CudaRow& row : rows_) {
    lengths.insert(row.n), dims.insert(row.dim), clusters.insert(row.clusters);
    if (row.clusters) densities.insert(row.density);
  }
  TORCH_CHECK_VALUE(!densities.empty(), "bench cuda: expected rows of a learned layer to plot; found none");
  const int64_t dim = *dims.begin(), most = *clusters.rbegin(),
                length = *std::next(lengths.begin(), static_cast<int64_t>(lengths.size() / 2));
  double highest = 1;
  for (const CudaRow& row : rows_)
    if (row.dim == dim) highest = std::max(highest, row.ms / row.dense_ms);
  std::vector<train::Panel> panels;
  const auto add_panel = [&](const std::string& title, const std::string& label, const auto& wanted,
                             const auto& place) {
    train::Panel panel{.title = title, .x_label = label, .y_label = "time / dense attention", .log_x = true};
    panel.y_range = {0, highest * 1.05};
    panel.reference_lines.push_back({1, "dense"});
    for (const CudaRow& row : rows_) {
      if (row.dim != dim || (row.clusters != 0 && row.clusters != most) || !densities.contains(row.density) ||
          !wanted(row))
        continue;
      auto series = std::find_if(panel.series.begin(), panel.series.end(),
                                 [&](const train::Series& s) { return s.name == row.name; });
      if (series == panel.series.end())
        series = panel.series.insert(panel.series.end(),
                                     {.name = row.name, .marks = train::Marks::kLineAndPoints});
      series->x.push_back(place(row));
      series->y.push_back(row.ms / row.dense_ms);
    }
    panels.push_back(std::move(panel));
  };
  add_panel(
      "n = " + std::to_string(length), "density", [&](const CudaRow& row) { return row.n == length; },
      [](const CudaRow& row) { return row.density; });
  for (const double density : {*densities.rbegin(), *densities.begin()})
    if (lengths.size() > 1)
      add_panel(
          percent(density, 0) + " of all pairs", "n",
          [&](const CudaRow& row) { return row.density == density; },
          [](const CudaRow& row) { return static_cast<double>(row.n); });
  const bool graphs = std::ranges::all_of(
      rows_, [&](const CudaRow& row) { return row.graph || !densities.contains(row.density); });
  const std::string title = "Head dim " + std::to_string(dim) + ", " + std::to_string(most) + " clusters, " +
                            rows_.front().dtype + (graphs ? ", CUDA graphs" : "");
  io::write_file_atomically(path, train::render_svg(panels, {.title = title}));
  std::cerr << "plot: " << path << "\n";
}

}  // namespace edgewise::app
