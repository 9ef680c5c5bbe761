// Charts as SVG text, without dependencies: line charts and heat maps in panels side by side. For run
// reports: legible in a browser, on paper and to colour-blind readers (Okabe-Ito colours, each with its own
// dash). Every member has an initialiser, so that {.title = ..., .series = ...} may name only some.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace edgewise::train {

enum class Marks { kLine, kPoints, kLineAndPoints };

struct Series {
  std::string name = {};                 // in the legend; "" leaves it out
  std::vector<double> x = {}, y = {};    // equal lengths; a non-finite value interrupts the line
  Marks marks = Marks::kLine;            // points: each series has its own shape
  std::vector<std::string> labels = {};  // beside the points; empty, or as many as x
  std::vector<double> errors = {};       // bars of the points, y +- error; empty, or as many as x
};

struct ReferenceLine {
  double y = 0;
  std::string label = {};  // at the right edge
};

// A matrix of values in 0..1 (clamped), row by row, row 0 on top: an edge mask or edge probabilities.
struct HeatMap {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values = {};  // [rows * columns]; NaN is drawn grey
};

struct Panel {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  bool log_x = false;                                     // values <= 0 are left out
  bool log_y = false;                                     // values <= 0 interrupt the line
  std::optional<std::pair<double, double>> y_range = {};  // default: what the data needs
  std::vector<Series> series = {};
  std::vector<ReferenceLine> reference_lines = {};
  std::optional<HeatMap> heat_map = {};  // if set, drawn instead of the series
};

struct PlotOptions {
  std::string title = {};  // above all panels
  int panel_width = 420;   // pixels, labels and margins included
  int panel_height = 300;  // without the legend
  int columns = 0;         // panels per row; 0: all in one row
};

// Long series are thinned to about a thousand points that keep every extreme; large matrices are averaged
// down to 256 x 256. Throws c10::ValueError if lengths differ, y_range is empty or not positive on a log
// axis, or a size is not positive.
std::string render_svg(const std::vector<Panel>& panels, const PlotOptions& options = {});

}  // namespace edgewise::train
