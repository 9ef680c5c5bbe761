// Axes: from values to the unit interval, and round numbers to label.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace edgewise::train::svg {

// Larger magnitudes count as missing: differences of doubles near the limit overflow.
constexpr double kLargestValue = 1e300;
bool can_draw(double value, bool log);

struct Scale {
  double low = 0;
  double high = 1;
  bool log = false;

  double position(double value) const;  // 0 at low, 1 at high
};

// A scale that holds low..high with `margin` (a fraction of the range) on both sides; widens an empty range.
Scale make_scale(double low, double high, bool log, double margin);

struct Tick {
  double value = 0;
  std::string label;
};
std::vector<Tick> make_ticks(const Scale& scale, int about);

// Indices to draw, at most about `most`, in order: of every stretch the smallest and the largest value. -1
// stands for an interruption of the line.
std::vector<long> thin_series(const std::vector<double>& x, const std::vector<double>& y, bool log_y,
                              long most);

}  // namespace edgewise::train::svg
