// Layout: every panel gets a cell of the same size; margins inside it follow from the labels it has to hold.
// The legend stands below the axes and labels of reference lines to the right of them, where no line can be
// covered.
#include <edgewise/plot/svg_plot.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include <c10/util/Exception.h>

#include "plot/svg_heat_map.h"
#include "plot/svg_labels.h"
#include "plot/svg_scale.h"
#include "plot/svg_text.h"

namespace edgewise::train {
namespace {

using namespace svg;  // NOLINT: this file is where svg's pieces are put together

constexpr double kGap = 16;          // around and between panels
constexpr double kTitleHeight = 30;  // of a panel's title
constexpr double kTickSize = 11, kLabelSize = 12, kLegendSize = 11.5;
constexpr double kLegendRow = 18, kSampleWidth = 26;
constexpr long kMostPoints = 1000;
constexpr int64_t kMostCells = 256;

// Okabe and Ito's palette, without its yellow, which is too light for lines on white.
constexpr std::array<const char*, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#e69f00", "#56b4e9", "#333333"};
constexpr std::array<const char*, 4> kDashes = {"", "7 3", "2 2.5", "9 3 2 3"};

std::string stroke_of(size_t series, double width) {
  std::string result = "stroke=\"";
  result += kColours[series % kColours.size()];
  result += "\" stroke-width=\"";
  result += number(width);
  result += "\"";
  // With seven colours and four dashes, 28 series differ.
  const char* dash = kDashes[series % kDashes.size()];
  if (*dash != '\0') (result += " stroke-dasharray=\"").append(dash) += "\"";
  return result;
}

struct Box {
  double left = 0, top = 0, width = 0, height = 0;
  double right() const { return left + width; }
  double bottom() const { return top + height; }
};

struct LegendItem {
  size_t series = 0;
  std::string label;
  double left = 0;
  int row = 0;
};

// Items from left to right, a new row when one is full.
std::vector<LegendItem> lay_out_legend(const Panel& panel, double width) {
  std::vector<LegendItem> items;
  if (panel.heat_map) return items;
  double left = 0;
  int row = 0;
  for (size_t i = 0; i < panel.series.size(); ++i) {
    if (panel.series[i].name.empty()) continue;
    const std::string label = shorten(panel.series[i].name, kLegendSize, width - kSampleWidth - 6);
    const double needed = kSampleWidth + 6 + text_width(label, kLegendSize);
    if (left > 0 && left + needed > width) {
      left = 0;
      ++row;
    }
    items.push_back({i, label, left, row});
    left += needed + 12;
  }
  return items;
}

double legend_height(const std::vector<LegendItem>& items) {
  return items.empty() ? 0 : 6 + kLegendRow * (items.back().row + 1);
}

void check_panel(const Panel& panel) {
  for (const Series& series : panel.series) {
    TORCH_CHECK_VALUE(series.x.size() == series.y.size(), "render_svg: series '", series.name, "' of panel '",
                      panel.title, "' has ", series.x.size(), " x but ", series.y.size(),
                      " y values; they must be as many");
    TORCH_CHECK_VALUE(series.labels.empty() || series.labels.size() == series.x.size(),
                      "render_svg: series '", series.name, "' of panel '", panel.title, "' has ",
                      series.x.size(), " points but ", series.labels.size(),
                      " labels; they must be as many, or none");
    TORCH_CHECK_VALUE(series.errors.empty() || series.errors.size() == series.x.size(),
                      "render_svg: series '", series.name, "' of panel '", panel.title, "' has ",
                      series.x.size(), " points but ", series.errors.size(),
                      " errors; they must be as many, or none");
  }
  if (panel.y_range) {
    const auto [low, high] = *panel.y_range;
    TORCH_CHECK_VALUE(can_draw(low, panel.log_y) && can_draw(high, panel.log_y) && low < high,
                      "render_svg: y_range [", low, ", ", high, "] of panel '", panel.title,
                      "' must be finite and rising", panel.log_y ? ", and positive on a log axis" : "");
  }
  if (panel.heat_map) {
    const HeatMap& map = *panel.heat_map;
    TORCH_CHECK_VALUE(map.rows > 0 && map.columns > 0 && map.rows <= int64_t{1} << 31 &&
                          map.columns <= int64_t{1} << 31 &&
                          static_cast<int64_t>(map.values.size()) == map.rows * map.columns,
                      "render_svg: heat map '", panel.title, "' of ", map.rows, " x ", map.columns,
                      " cells needs as many values; got ", map.values.size());
  }
}

struct Axes {
  Scale x, y;
  std::vector<Tick> x_ticks, y_ticks;
  bool empty = true;  // nothing to draw
};

// Steps 0 to 39999 should end at a labelled 40k.
Scale end_on_tick(Scale scale) {
  const std::vector<Tick> ticks = make_ticks(scale, 5);
  if (ticks.size() < 2) return scale;
  const double next = 2 * ticks.back().value - ticks[ticks.size() - 2].value;
  if (next - scale.high < 0.01 * (scale.high - scale.low)) scale.high = std::max(scale.high, next);
  return scale;
}

// Half the bar of a point; 0 where it has none.
double error_at(const Series& series, size_t point) {
  if (series.errors.empty() || series.marks == Marks::kLine) return 0;
  const double error = series.errors[point];
  return std::isfinite(error) && error > 0 ? error : 0;
}

Axes make_axes(const Panel& panel) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  double x_low = kNone, x_high = -kNone, y_low = kNone, y_high = -kNone;
  Axes axes;
  for (const Series& series : panel.series) {
    for (size_t i = 0; i < series.y.size(); ++i) {
      if (!can_draw(series.x[i], panel.log_x) || !can_draw(series.y[i], panel.log_y)) continue;
      axes.empty = false;
      x_low = std::min(x_low, series.x[i]), x_high = std::max(x_high, series.x[i]);
      const double low = series.y[i] - error_at(series, i);
      y_low = std::min(y_low, can_draw(low, panel.log_y) ? low : series.y[i]);
      y_high = std::max(y_high, series.y[i] + error_at(series, i));
    }
  }
  for (const ReferenceLine& reference : panel.reference_lines) {
    if (!can_draw(reference.y, panel.log_y)) continue;
    y_low = std::min(y_low, reference.y), y_high = std::max(y_high, reference.y);
  }
  if (x_low > x_high) x_low = panel.log_x ? 0.1 : 0, x_high = 1;
  if (y_low > y_high) y_low = panel.log_y ? 0.1 : 0, y_high = 1;
  // Points need air around them; a line over steps begins at the axis.
  const bool has_points =
      std::ranges::any_of(panel.series, [](const Series& series) { return series.marks != Marks::kLine; });
  axes.x = make_scale(x_low, x_high, panel.log_x, has_points ? 0.06 : 0);
  if (!panel.log_x) axes.x = end_on_tick(axes.x);
  axes.y = panel.y_range ? Scale{panel.y_range->first, panel.y_range->second, panel.log_y}
                         : make_scale(y_low, y_high, panel.log_y, has_points ? 0.1 : 0.05);
  // A margin below zero looks as if there were negative values.
  if (!panel.y_range && !panel.log_y && y_low >= 0 && axes.y.low < 0) axes.y.low = 0;
  if (axes.empty && panel.reference_lines.empty()) return axes;
  axes.x_ticks = make_ticks(axes.x, 5);
  axes.y_ticks = make_ticks(axes.y, 5);
  return axes;
}

double widest(const std::vector<Tick>& ticks) {
  double width = 0;
  for (const Tick& tick : ticks) width = std::max(width, text_width(tick.label, kTickSize));
  return width;
}

Box inner_box(const Panel& panel, const Box& cell, double label_width, double right) {
  Box box;
  const double left = label_width + 10 + (panel.y_label.empty() ? 0 : kLabelSize + 8);
  const double bottom = 20 + (panel.x_label.empty() ? 0 : kLabelSize + 8);
  box.left = cell.left + left;
  box.top = cell.top + (panel.title.empty() ? 8 : kTitleHeight);
  box.width = std::max(20.0, cell.width - left - right);
  box.height = std::max(20.0, cell.bottom() - bottom - box.top);
  return box;
}

std::string draw_labels(const Panel& panel, const Box& cell, const Box& box) {
  std::string out;
  if (!panel.title.empty()) {
    out += text(box.left, cell.top + 18, shorten(panel.title, 14, cell.right() - box.left),
                {.size = 14, .fill = "#222", .bold = true});
  }
  if (!panel.x_label.empty()) {
    out += text(box.left + box.width / 2, box.bottom() + 37, shorten(panel.x_label, kLabelSize, box.width),
                {.size = kLabelSize, .anchor = "middle"});
  }
  if (!panel.y_label.empty()) {
    out += vertical_text(cell.left + kLabelSize, box.top + box.height / 2,
                         shorten(panel.y_label, kLabelSize, box.height),
                         {.size = kLabelSize, .anchor = "middle"});
  }
  return out;
}

// Half a pixel: a line of width 1 then fills one row of pixels instead of two halves.
double crisp(double position) {
  return std::floor(position) + 0.5;
}

std::string draw_axes(const Axes& axes, const Box& box) {
  std::string out;
  for (const Tick& tick : axes.y_ticks) {
    const double y = crisp(box.bottom() - axes.y.position(tick.value) * box.height);
    out += line(box.left, y, box.right(), y, "stroke=\"#e4e4e4\"");
    out += text(box.left - 7, y + 4, tick.label, {.size = kTickSize, .anchor = "end"});
  }
  for (const Tick& tick : axes.x_ticks) {
    const double x = crisp(box.left + axes.x.position(tick.value) * box.width);
    out += line(x, box.bottom(), x, box.bottom() + 4, "stroke=\"#777\"");
    out += text(x, box.bottom() + 17, tick.label, {.size = kTickSize, .anchor = "middle"});
  }
  out += line(crisp(box.left), box.top, crisp(box.left), box.bottom(), "stroke=\"#777\"");
  out += line(box.left, crisp(box.bottom()), box.right(), crisp(box.bottom()), "stroke=\"#777\"");
  return out;
}

// A shape for each series, so that points differ without their colours too.
std::string draw_point(size_t series, double x, double y) {
  constexpr double kSize = 4.5;
  const std::string fill = std::string("fill=\"") + kColours[series % kColours.size()] + "\"";
  const auto polygon = [&](std::initializer_list<std::pair<double, double>> corners) {
    std::string points;
    for (const auto& [dx, dy] : corners) {
      points += (points.empty() ? "" : " ") + number(x + dx * kSize) + "," + number(y + dy * kSize);
    }
    return "<polygon points=\"" + points + "\" " + fill + "/>\n";
  };
  switch (series % 4) {
    case 1:
      return polygon({{-1, -1}, {1, -1}, {1, 1}, {-1, 1}});
    case 2:
      return polygon({{0, -1.2}, {1.2, 1}, {-1.2, 1}});
    case 3:
      return polygon({{0, -1.3}, {1.3, 0}, {0, 1.3}, {-1.3, 0}});
    default:
      return "<circle cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"" + number(kSize) + "\" " + fill +
             "/>\n";
  }
}

// The points of a series that has marks for them.
std::vector<LabelledPoint> points_of(const Panel& panel, const Axes& axes, const Box& box, size_t index) {
  const Series& series = panel.series[index];
  std::vector<LabelledPoint> points;
  if (series.marks == Marks::kLine) return points;
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!can_draw(series.x[i], panel.log_x) || !can_draw(series.y[i], panel.log_y)) continue;
    points.push_back({axes.x.position(series.x[i]) * box.width,
                      (1 - axes.y.position(series.y[i])) * box.height,
                      series.labels.empty() ? "" : series.labels[i], kColours[index % kColours.size()]});
  }
  return points;
}

std::string draw_point_labels(const Panel& panel, const Axes& axes, const Box& box) {
  std::vector<LabelledPoint> points;
  bool has_labels = false;
  for (size_t i = 0; i < panel.series.size(); ++i) {
    has_labels = has_labels || !panel.series[i].labels.empty();
    std::ranges::copy(points_of(panel, axes, box, i), std::back_inserter(points));
  }
  std::string out;
  if (!has_labels) return out;
  const std::vector<Label> labels = place_labels(points, kTickSize, box.width, box.height);
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i].label.empty()) continue;
    out += text(labels[i].x, labels[i].y, points[i].label,
                {.size = kTickSize, .anchor = labels[i].anchor, .fill = points[i].fill});
  }
  return out;
}

std::string draw_error_bars(const Panel& panel, const Axes& axes, const Box& box, size_t index) {
  constexpr double kCap = 3;
  const Series& series = panel.series[index];
  const std::string stroke = std::string("stroke=\"") + kColours[index % kColours.size()] + "\"";
  std::string out;
  for (size_t i = 0; i < series.x.size(); ++i) {
    const double error = error_at(series, i);
    if (error == 0 || !can_draw(series.x[i], panel.log_x) || !can_draw(series.y[i], panel.log_y)) continue;
    const auto height = [&](double y) {
      const double position = can_draw(y, panel.log_y) ? axes.y.position(y) : 0;
      return std::clamp((1 - position) * box.height, -1e4, 1e4);
    };
    const double x = axes.x.position(series.x[i]) * box.width;
    const double low = height(series.y[i] - error), high = height(series.y[i] + error);
    out += line(x, low, x, high, stroke);
    for (const double y : {low, high}) out += line(x - kCap, y, x + kCap, y, stroke);
  }
  return out;
}

std::string draw_series(const Panel& panel, const Axes& axes, const Box& box, size_t index) {
  const Series& series = panel.series[index];
  std::string points = draw_error_bars(panel, axes, box, index);
  for (const LabelledPoint& point : points_of(panel, axes, box, index))
    points += draw_point(index, point.x, point.y);
  if (series.marks == Marks::kPoints) return points;
  std::string path, dots;
  std::vector<long> run;
  const auto flush = [&] {
    const auto place = [&](long i) {
      const auto at = static_cast<size_t>(i);
      const double x = axes.x.position(series.x[at]) * box.width;
      // Far outside an explicit range coordinates are of no use, and renderers overflow on them.
      const double y = std::clamp((1 - axes.y.position(series.y[at])) * box.height, -1e4, 1e4);
      return std::pair(number(x), number(y));
    };
    if (run.size() == 1) {
      const auto [x, y] = place(run[0]);
      dots += "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"2.5\" fill=\"" +
              kColours[index % kColours.size()] + "\"/>\n";
    }
    for (size_t i = 0; i < run.size() && run.size() > 1; ++i) {
      const auto [x, y] = place(run[i]);
      path += i == 0 ? "M" : "L";
      path += x + " " + y;
    }
    run.clear();
  };
  for (const long i : thin_series(series.x, series.y, panel.log_y, kMostPoints)) {
    if (i < 0 || !can_draw(series.x[static_cast<size_t>(i)], panel.log_x)) {
      flush();
    } else {
      run.push_back(i);
    }
  }
  flush();
  if (!path.empty()) {
    // Many points are mostly noise, and a thick line would fill it in.
    const double width = series.y.size() > 300 ? 1.1 : 1.8;
    path = "<path d=\"" + path + "\" fill=\"none\" " + stroke_of(index, width) +
           " stroke-linejoin=\"round\"/>\n";
  }
  return path += dots + points;
}

// A nested svg clips what leaves the axes; unlike a clipPath it needs no id, which could clash when charts
// share a page.
std::string clipped(const Box& box, const std::string& content) {
  return "<svg x=\"" + number(box.left) + "\" y=\"" + number(box.top) + "\" width=\"" + number(box.width) +
         "\" height=\"" + number(box.height) + "\" overflow=\"hidden\">\n" + content + "</svg>\n";
}

std::string draw_reference_lines(const Panel& panel, const Axes& axes, const Box& box, double room) {
  std::vector<std::pair<double, std::string>> labels;
  std::string out;
  for (const ReferenceLine& reference : panel.reference_lines) {
    if (!can_draw(reference.y, panel.log_y)) continue;
    const double position = axes.y.position(reference.y);
    if (position < 0 || position > 1) continue;
    const double y = crisp(box.bottom() - position * box.height);
    out += line(box.left, y, box.right(), y, "stroke=\"#666\" stroke-dasharray=\"4 3\"");
    if (!reference.label.empty()) labels.emplace_back(y, shorten(reference.label, kTickSize, room - 8));
  }
  // Close labels are pushed apart downwards, then back up if they left the panel.
  std::sort(labels.begin(), labels.end());
  for (size_t i = 1; i < labels.size(); ++i)
    labels[i].first = std::max(labels[i].first, labels[i - 1].first + 13);
  double limit = box.bottom();
  for (size_t i = labels.size(); i-- > 0; limit -= 13) labels[i].first = std::min(labels[i].first, limit);
  for (const auto& [y, label] : labels)
    out += text(box.right() + 5, y + 4, label, {.size = kTickSize, .fill = "#555"});
  return out;
}

std::string draw_legend(const std::vector<LegendItem>& items, const std::vector<Series>& series, double left,
                        double top) {
  std::string out;
  for (const LegendItem& item : items) {
    const double y = top + 6 + kLegendRow * (item.row + 0.5);
    const Marks marks = series[item.series].marks;
    if (marks != Marks::kPoints)
      out += line(left + item.left, y, left + item.left + kSampleWidth, y, stroke_of(item.series, 1.8));
    if (marks != Marks::kLine) out += draw_point(item.series, left + item.left + kSampleWidth / 2, y);
    out +=
        text(left + item.left + kSampleWidth + 6, y + 4, item.label, {.size = kLegendSize, .fill = "#333"});
  }
  return out;
}

std::string draw_chart(const Panel& panel, const Box& cell) {
  const Axes axes = make_axes(panel);
  double right =
      std::max(10.0, axes.x_ticks.empty() ? 0 : text_width(axes.x_ticks.back().label, kTickSize) / 2);
  for (const ReferenceLine& reference : panel.reference_lines) {
    right = std::max(right, std::min(text_width(reference.label, kTickSize) + 8, cell.width * 0.3));
  }
  const Box box = inner_box(panel, cell, widest(axes.y_ticks), right);
  std::string out = draw_labels(panel, cell, box) + draw_axes(axes, box);
  out += draw_reference_lines(panel, axes, box, right);
  std::string lines;
  for (size_t i = 0; i < panel.series.size(); ++i) lines += draw_series(panel, axes, box, i);
  out += clipped(box, lines + draw_point_labels(panel, axes, box));
  if (axes.empty) {
    out += text(box.left + box.width / 2, box.top + box.height / 2, "no data",
                {.size = 13, .anchor = "middle", .fill = "#999"});
  }
  return out;
}

std::string draw_map(const Panel& panel, const Box& cell) {
  const HeatMap& map = *panel.heat_map;
  constexpr double kBarRoom = 44;
  const Scale x{0, static_cast<double>(map.columns), false}, y{0, static_cast<double>(map.rows), false};
  std::vector<Tick> x_ticks = make_ticks(x, 4), y_ticks = make_ticks(y, 4);
  const auto fractional = [](const Tick& tick) { return tick.value != std::floor(tick.value); };
  std::erase_if(x_ticks, fractional);
  std::erase_if(y_ticks, fractional);
  Box box = inner_box(panel, cell, widest(y_ticks), kBarRoom);
  // Square cells where the matrix is not too long or too flat for them.
  const double shape = static_cast<double>(map.columns) / static_cast<double>(map.rows);
  if (shape > 0.25 && shape < 4) {
    const double cell_size =
        std::min(box.width / static_cast<double>(map.columns), box.height / static_cast<double>(map.rows));
    box.width = cell_size * static_cast<double>(map.columns);
    box.height = cell_size * static_cast<double>(map.rows);
  }
  std::string out = draw_labels(panel, cell, box);
  out += draw_heat_map(thin_heat_map(map, kMostCells), box.left, box.top, box.width, box.height);
  out += "<rect x=\"" + number(box.left) + "\" y=\"" + number(box.top) + "\" width=\"" + number(box.width) +
         "\" height=\"" + number(box.height) + "\" fill=\"none\" stroke=\"#777\"/>\n";
  for (const Tick& tick : x_ticks) {
    const double at = box.left + x.position(tick.value) * box.width;
    out += line(at, box.bottom(), at, box.bottom() + 4, "stroke=\"#777\"");
    out += text(at, box.bottom() + 17, tick.label, {.size = kTickSize, .anchor = "middle"});
  }
  for (const Tick& tick : y_ticks) {
    const double at = box.top + y.position(tick.value) * box.height;
    out += line(box.left - 4, at, box.left, at, "stroke=\"#777\"");
    out += text(box.left - 7, at + 4, tick.label, {.size = kTickSize, .anchor = "end"});
  }
  return out += draw_colour_bar(box.right() + 12, box.top, 10, box.height);
}

}  // namespace

std::string render_svg(const std::vector<Panel>& panels, const PlotOptions& options) {
  TORCH_CHECK_VALUE(options.panel_width > 0 && options.panel_height > 0,
                    "render_svg: expected a positive panel size; got ", options.panel_width, " x ",
                    options.panel_height);
  for (const Panel& panel : panels) check_panel(panel);
  const size_t per_row =
      options.columns > 0 ? static_cast<size_t>(options.columns) : std::max<size_t>(1, panels.size());
  const double title_height = options.title.empty() ? 0 : 30;
  const double panel_width = options.panel_width, panel_height = options.panel_height;

  std::string body;
  double top = kGap + title_height;
  for (size_t first = 0; first < panels.size(); first += per_row) {
    double tallest_legend = 0;
    for (size_t i = first; i < std::min(first + per_row, panels.size()); ++i) {
      const Box cell{kGap + static_cast<double>(i - first) * (panel_width + kGap), top, panel_width,
                     panel_height};
      body += "<g>\n";
      body += panels[i].heat_map ? draw_map(panels[i], cell) : draw_chart(panels[i], cell);
      const auto legend = lay_out_legend(panels[i], cell.width - 24);
      body += draw_legend(legend, panels[i].series, cell.left + 24, cell.bottom());
      body += "</g>\n";
      tallest_legend = std::max(tallest_legend, legend_height(legend));
    }
    top += panel_height + tallest_legend + kGap;
  }
  const double columns = static_cast<double>(std::min(per_row, std::max<size_t>(1, panels.size())));
  const std::string width = number(kGap + columns * (panel_width + kGap)), height = number(top);
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height +
      "\" viewBox=\"0 0 " + width + " " + height +
      "\" font-family=\"Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  if (!options.title.empty()) {
    out += text(kGap, kGap + 18, options.title, {.size = 17, .fill = "#111", .bold = true});
  }
  return out += body + "</svg>\n";
}

}  // namespace edgewise::train
