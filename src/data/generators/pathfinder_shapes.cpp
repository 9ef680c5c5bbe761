#include "data/generators/pathfinder_shapes.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include "data/readers/lanczos.h"

namespace edgewise::data::pathfinder {

namespace {

constexpr int kLargeReach = kReach * kAntialias;
constexpr int kLargeSide = 2 * kLargeReach + 1;
constexpr int kLargeLength = kPaddleLength * kAntialias;

// Bresenham's line with the first point's rounding of Pillow's ImageDraw, both ends included.
void draw_line(std::vector<uint8_t>& picture, Point from, Point to) {
  const int dx = std::abs(to.x - from.x), dy = std::abs(to.y - from.y);
  const int step_x = to.x < from.x ? -1 : 1, step_y = to.y < from.y ? -1 : 1;
  const bool is_flat = dx > dy;
  const int many = is_flat ? dx : dy, few = is_flat ? dy : dx;
  int error = 2 * few - many;
  for (int i = 0; i <= many; ++i) {
    picture[static_cast<size_t>(from.y * kLargeSide + from.x)] = 255;
    if (few > 0 && error >= 0) {
      (is_flat ? from.y : from.x) += is_flat ? step_y : step_x;
      error -= 2 * many;
    }
    error += 2 * few;
    (is_flat ? from.x : from.y) += is_flat ? step_x : step_y;
  }
}

std::vector<uint8_t> widened(const std::vector<uint8_t>& picture, int radius) {
  std::vector<uint8_t> result(picture.size());
  for (int y = 0; y < kLargeSide; ++y) {
    for (int x = 0; x < kLargeSide; ++x) {
      for (int v = std::max(y - radius, 0); v <= std::min(y + radius, kLargeSide - 1); ++v) {
        for (int u = std::max(x - radius, 0); u <= std::min(x + radius, kLargeSide - 1); ++u) {
          if ((v - y) * (v - y) + (u - x) * (u - x) > radius * radius) continue;
          auto& here = result[static_cast<size_t>(y * kLargeSide + x)];
          here = std::max(here, picture[static_cast<size_t>(v * kLargeSide + u)]);
        }
      }
    }
  }
  return result;
}

Shape shrunk(const std::vector<uint8_t>& large) {
  const std::vector<uint8_t> small = shrink_lanczos(large, kLargeSide, kShapeSide);
  Shape shape{};
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = small[i] / 255.0;
  return shape;
}

// The full entries of the mask on a square of side 2 (length + margin) + 1, where the shape's middle comes to
// lie one beyond the square's own: a slip of the original that shapes its data.
std::vector<Point> keep_off_points(const Shape& mask) {
  constexpr int kSquareReach = kPaddleLength + kMargin;
  std::vector<Point> points;
  for (int y = 0; y <= 2 * kSquareReach; ++y) {
    for (int x = 0; x <= 2 * kSquareReach; ++x) {
      const int shape_y = y - (kSquareReach + 1) + kReach, shape_x = x - (kSquareReach + 1) + kReach;
      if (mask[static_cast<size_t>(shape_y * kShapeSide + shape_x)] == 1.0) {
        points.push_back({y - kSquareReach, x - kSquareReach});
      }
    }
  }
  return points;
}

bool every_point_has_one_inside(const std::vector<Point>& offsets) {
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      if (std::ranges::none_of(offsets, [&](Point o) { return is_inside({y + o.y, x + o.x}); })) return false;
    }
  }
  return true;
}

Paddle make_paddle(Point end) {
  std::vector<uint8_t> large(static_cast<size_t>(kLargeSide * kLargeSide));
  draw_line(large, {kLargeReach, kLargeReach}, end);
  Paddle result;
  result.ink = shrunk(large);
  result.mask = shrunk(widened(large, kMargin * kAntialias));
  result.keep_off = keep_off_points(result.mask);
  result.is_usable = every_point_has_one_inside(result.keep_off);
  return result;
}

Point large_end(double direction) {
  return step({kLargeReach, kLargeReach}, direction, kLargeLength);
}

// Every point a dash can end at, when drawn large.
std::map<std::pair<int, int>, Paddle> make_paddles() {
  std::map<std::pair<int, int>, Paddle> all;
  for (int y = -kLargeLength; y <= kLargeLength; ++y) {
    for (int x = -kLargeLength; x <= kLargeLength; ++x) {
      const Point end{kLargeReach + y, kLargeReach + x};
      all.emplace(std::pair(end.y, end.x), make_paddle(end));
    }
  }
  return all;
}

}  // namespace

Point step(Point from, double direction, double distance) {
  return {static_cast<int>(std::ceil(from.y + distance * std::sin(direction))),
          static_cast<int>(std::ceil(from.x + distance * std::cos(direction)))};
}

const Paddle& paddle(double direction) {
  static const std::map<std::pair<int, int>, Paddle> all = make_paddles();
  const Point end = large_end(direction);
  return all.at({end.y, end.x});
}

std::vector<double> mark(Point centre) {
  constexpr int kLarge = kSide * kAntialias;
  constexpr double kRadius = kMarkRadius * kAntialias;
  std::vector<uint8_t> large(static_cast<size_t>(kLarge * kLarge));
  for (int y = 0; y < kLarge; ++y) {
    for (int x = 0; x < kLarge; ++x) {
      const int v = y - centre.y * kAntialias, u = x - centre.x * kAntialias;
      if (v * v + u * u <= kRadius * kRadius) large[static_cast<size_t>(y * kLarge + x)] = 255;
    }
  }
  const std::vector<uint8_t> small = shrink_lanczos(large, kLarge, kSide);
  std::vector<double> result(small.size());
  for (size_t i = 0; i < small.size(); ++i) result[i] = small[i] / 255.0;
  return result;
}

}  // namespace edgewise::data::pathfinder
