#include "plot/svg_labels.h"

#include <algorithm>
#include <array>
#include <limits>

#include "plot/svg_text.h"

namespace edgewise::train::svg {
namespace {

constexpr double kMarker = 5;  // half the side of a square that holds any marker

struct Rectangle {
  double left = 0, top = 0, right = 0, bottom = 0;
};

double common_area(const Rectangle& a, const Rectangle& b) {
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  return width > 0 && height > 0 ? width * height : 0;
}

// Above on the right, where one looks first, then around the point.
constexpr std::array<Label, 8> kPlaces = {{{8, -6.5, "start"},
                                           {-8, -6.5, "end"},
                                           {8, 14, "start"},
                                           {-8, 14, "end"},
                                           {0, -8, "middle"},
                                           {0, 17, "middle"},
                                           {9, 4, "start"},
                                           {-9, 4, "end"}}};

Rectangle rectangle_of(const Label& label, double text_width, double text_size) {
  const std::string_view anchor = label.anchor;
  const double left = label.x - (anchor == "start" ? 0 : anchor == "end" ? text_width : text_width / 2);
  return {left, label.y - 0.75 * text_size, left + text_width, label.y + 0.1 * text_size};
}

}  // namespace

std::vector<Label> place_labels(const std::vector<LabelledPoint>& points, double text_size, double width,
                                double height) {
  std::vector<Rectangle> taken;
  taken.reserve(points.size());
  for (const LabelledPoint& point : points)
    taken.push_back({point.x - kMarker, point.y - kMarker, point.x + kMarker, point.y + kMarker});
  std::vector<Label> labels;
  for (const LabelledPoint& point : points) {
    Label best;
    Rectangle best_rectangle;
    double least = std::numeric_limits<double>::infinity();
    const double needed = text_width(point.label, text_size);
    for (const Label& place : kPlaces) {
      const Label label{point.x + place.x, point.y + place.y, place.anchor};
      const Rectangle rectangle = rectangle_of(label, needed, text_size);
      // What lies outside is cut off, which is worse than being covered.
      double covered =
          10 * (common_area(rectangle, rectangle) - common_area(rectangle, {0, 0, width, height}));
      for (const Rectangle& other : taken) covered += common_area(rectangle, other);
      if (covered < least) least = covered, best = label, best_rectangle = rectangle;
      if (point.label.empty() || covered == 0) break;
    }
    labels.push_back(best);
    if (!point.label.empty()) taken.push_back(best_rectangle);
  }
  return labels;
}

}  // namespace edgewise::train::svg
