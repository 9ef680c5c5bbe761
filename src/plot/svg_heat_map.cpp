// Heat maps: averaging down, colours, and cells merged into few paths.
#include "plot/svg_heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "plot/svg_text.h"

namespace edgewise::train::svg {
namespace {

constexpr int kLevels = 64;  // colours; level kLevels is "no value"
constexpr const char* kNoValue = "#d9d9d9";

// One hue from near white to near black, so that darker is more, also in print and to every eye.
std::string colour(int level) {
  if (level == kLevels) return kNoValue;
  constexpr std::array<std::array<double, 3>, 4> kStops = {
      {{247, 251, 255}, {158, 202, 225}, {49, 130, 189}, {8, 40, 90}}};
  const double place = static_cast<double>(level) / (kLevels - 1) * (kStops.size() - 1);
  const auto stop = std::min(static_cast<size_t>(place), kStops.size() - 2);
  const double part = place - static_cast<double>(stop);
  std::array<int, 3> rgb{};
  for (size_t c = 0; c < 3; ++c) {
    rgb[c] = static_cast<int>(std::lround(kStops[stop][c] + part * (kStops[stop + 1][c] - kStops[stop][c])));
  }
  char text[8];
  std::snprintf(text, sizeof(text), "#%02x%02x%02x", rgb[0] & 255, rgb[1] & 255, rgb[2] & 255);
  return text;
}

int level_of(double value) {
  if (std::isnan(value)) return kLevels;
  return static_cast<int>(std::lround(std::clamp(value, 0.0, 1.0) * (kLevels - 1)));
}

}  // namespace

HeatMap thin_heat_map(const HeatMap& map, int64_t most) {
  if (map.rows <= most && map.columns <= most) return map;
  HeatMap result;
  result.rows = std::min(map.rows, most);
  result.columns = std::min(map.columns, most);
  const auto cells = static_cast<size_t>(result.rows * result.columns);
  std::vector<double> sums(cells, 0.0), counts(cells, 0.0);
  for (int64_t row = 0; row < map.rows; ++row) {
    for (int64_t column = 0; column < map.columns; ++column) {
      const double value = map.values[static_cast<size_t>(row * map.columns + column)];
      if (std::isnan(value)) continue;
      const int64_t to =
          row * result.rows / map.rows * result.columns + column * result.columns / map.columns;
      sums[static_cast<size_t>(to)] += std::clamp(value, 0.0, 1.0);
      counts[static_cast<size_t>(to)] += 1;
    }
  }
  result.values.resize(cells);
  for (size_t i = 0; i < cells; ++i) {
    result.values[i] = counts[i] > 0 ? sums[i] / counts[i] : std::numeric_limits<double>::quiet_NaN();
  }
  return result;
}

std::string draw_heat_map(const HeatMap& map, double x, double y, double width, double height) {
  std::array<std::string, kLevels + 1> paths;
  for (int64_t row = 0; row < map.rows; ++row) {
    for (int64_t column = 0; column < map.columns;) {
      const auto level_at = [&](int64_t c) {
        return level_of(map.values[static_cast<size_t>(row * map.columns + c)]);
      };
      const int level = level_at(column);
      int64_t end = column + 1;
      while (end < map.columns && level_at(end) == level) ++end;
      // Level 0 is the background.
      if (level > 0) {
        char rect[96];
        std::snprintf(rect, sizeof(rect), "M%lld %lldh%lldv1h-%lldz", static_cast<long long>(column),
                      static_cast<long long>(row), static_cast<long long>(end - column),
                      static_cast<long long>(end - column));
        paths[static_cast<size_t>(level)] += rect;
      }
      column = end;
    }
  }
  const std::string size =
      "width=\"" + std::to_string(map.columns) + "\" height=\"" + std::to_string(map.rows) + "\"";
  std::string result = "<svg x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) +
                       "\" height=\"" + number(height) + "\" viewBox=\"0 0 " + std::to_string(map.columns) +
                       " " + std::to_string(map.rows) +
                       "\" preserveAspectRatio=\"none\" shape-rendering=\"crispEdges\">\n";
  result += "<rect " + size + " fill=\"" + colour(0) + "\"/>\n";
  for (int level = 1; level <= kLevels; ++level) {
    const std::string& path = paths[static_cast<size_t>(level)];
    if (!path.empty()) result += "<path fill=\"" + colour(level) + "\" d=\"" + path + "\"/>\n";
  }
  return result += "</svg>\n";
}

std::string draw_colour_bar(double x, double y, double width, double height) {
  constexpr int kSteps = 32;
  HeatMap bar{kSteps, 1, {}};
  for (int i = 0; i < kSteps; ++i) bar.values.push_back(1 - static_cast<double>(i) / (kSteps - 1));
  std::string result = draw_heat_map(bar, x, y, width, height);
  for (const double value : {0.0, 0.5, 1.0}) {
    result +=
        text(x + width + 4, y + (1 - value) * height + 4, value == 0.5 ? "0.5" : number(value), {.size = 10});
  }
  return result;
}

}  // namespace edgewise::train::svg
