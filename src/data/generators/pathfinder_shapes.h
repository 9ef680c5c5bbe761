// The shapes Pathfinder's pictures are made of, drawn once at twice the size and shrunk: dashes with the
// masks that keep others off, and marks.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace edgewise::data::pathfinder {

// The settings of the 32 x 32 pictures.
inline constexpr int kSide = 32;
inline constexpr int kPaddleLength = 2;
inline constexpr int kMargin = 1;
inline constexpr int kAntialias = 2;       // shapes are drawn so many times larger
inline constexpr double kThickness = 0.5;  // of a dash: one pixel when drawn large
inline constexpr double kMarkRadius = 1.5;
inline constexpr int kReach =
    kPaddleLength + 1 + kMargin;  // from the middle of a shape to its edge; 1 = the thickness rounded up
inline constexpr int kShapeSide = 2 * kReach + 1;

struct Point {
  int y = 0, x = 0;
  bool operator==(const Point&) const = default;
};
inline bool is_inside(Point p) {
  return p.y >= 0 && p.y < kSide && p.x >= 0 && p.x < kSide;
}
// From a point so far in a direction; both coordinates are rounded up.
Point step(Point from, double direction, double distance);

using Shape =
    std::array<double, kShapeSide * kShapeSide>;  // 0..1; its middle lies on the point it is drawn at

struct Paddle {
  Shape ink{}, mask{};
  // Where a first dash may not be begun, as offsets: a point is blocked when one of these is. `is_usable`
  // says whether every point of the picture has one of them inside; if not, the generator of the original
  // finds no room anywhere.
  std::vector<Point> keep_off;
  bool is_usable = false;
};

// A dash from its middle towards `direction`. There are only a few different ones.
const Paddle& paddle(double direction);

// The mark round a point, on the whole picture.
std::vector<double> mark(Point centre);

}  // namespace edgewise::data::pathfinder
