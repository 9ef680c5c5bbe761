#include "bench/bench_cells.h"

#include <iostream>

namespace edgewise::app {
namespace {

std::string spelled(const train::ProgressFields& name) {
  std::string text;
  for (const auto& [key, value] : name) text += (text.empty() ? "" : ", ") + key + " = " + value;
  return text;
}

train::ProgressOptions bar_of(const std::string& command, size_t cells) {
  train::ProgressOptions bar;
  bar.label = command;
  bar.total = static_cast<int64_t>(cells);
  bar.unit = "cell";
  bar.transient = true;
  return bar;
}

}  // namespace

void measure_cells(const std::string& command, const std::vector<Cell>& cells, const Body& print) {
  train::Progress progress(bar_of(command, cells.size()));
  for (size_t done = 0; done < cells.size(); ++done) {
    progress.update(static_cast<int64_t>(done), cells[done].name);
    try {
      const Body keep = cells[done].measure();
      progress.hide();
      keep();
    } catch (...) {
      progress.hide();
      if (done > 0) print();
      std::cout << std::flush;  // before what stderr says
      std::cerr << command << ": failed at " << spelled(cells[done].name) << ", after " << done << " of "
                << cells.size() << " cells\n";
      throw;
    }
  }
  progress.update(static_cast<int64_t>(cells.size()));
  progress.finish();
  print();
  std::cout << std::flush;
  if (const std::string warning = disturbance_warning(disturbance()); !warning.empty())
    std::cerr << command << ": " << warning << "\n";
}

}  // namespace edgewise::app
