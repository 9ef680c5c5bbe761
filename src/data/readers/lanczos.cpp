#include "data/readers/lanczos.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace edgewise::data {

namespace {

constexpr int kBits = 32 - 8 - 2;  // of the fraction of a weight
constexpr double kLobes = 3;

double sinc(double x) {
  return x == 0 ? 1 : std::sin(x * std::numbers::pi) / (x * std::numbers::pi);
}

double lanczos(double x) {
  return -kLobes <= x && x < kLobes ? sinc(x) * sinc(x / kLobes) : 0;
}

struct Window {
  int first = 0;
  std::vector<int> weights;
};

// Which input pixels make up each output pixel, and with which weights.
std::vector<Window> windows(int side, int new_side) {
  const double scale = static_cast<double>(side) / new_side, wide = std::max(scale, 1.0),
               support = kLobes * wide;
  std::vector<Window> result(static_cast<size_t>(new_side));
  for (int out = 0; out < new_side; ++out) {
    const double centre = (out + 0.5) * scale;
    // Cut off towards zero, as Pillow does. NOLINTBEGIN(bugprone-incorrect-roundings)
    const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int last = std::min(static_cast<int>(centre + support + 0.5), side);
    // NOLINTEND(bugprone-incorrect-roundings)
    std::vector<double> exact;
    double sum = 0;
    for (int in = first; in < last; ++in) {
      exact.push_back(lanczos((in - centre + 0.5) * (1 / wide)));
      sum += exact.back();
    }
    Window& window = result[static_cast<size_t>(out)];
    window.first = first;
    for (const double weight : exact) {
      const double scaled = weight / sum * (1 << kBits);
      window.weights.push_back(static_cast<int>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
    }
  }
  return result;
}

uint8_t rounded(int64_t sum) {
  return static_cast<uint8_t>(std::clamp<int64_t>((sum + (1 << (kBits - 1))) >> kBits, 0, 255));
}

// One axis: input pixel i of line l is at l * line_step + i * pixel_step, and likewise in the output.
struct Axis {
  int lines, in_line_step, in_pixel_step, out_line_step, out_pixel_step;
};

void shrink_axis(const std::vector<Window>& all, const Axis& axis, const uint8_t* in, uint8_t* out) {
  for (int line = 0; line < axis.lines; ++line) {
    for (size_t pixel = 0; pixel < all.size(); ++pixel) {
      int64_t sum = 0;
      for (size_t i = 0; i < all[pixel].weights.size(); ++i) {
        const int place = all[pixel].first + static_cast<int>(i);
        sum += int64_t{all[pixel].weights[i]} * in[line * axis.in_line_step + place * axis.in_pixel_step];
      }
      out[line * axis.out_line_step + static_cast<int>(pixel) * axis.out_pixel_step] = rounded(sum);
    }
  }
}

}  // namespace

std::vector<uint8_t> shrink_lanczos(const std::vector<uint8_t>& picture, int side, int new_side) {
  const std::vector<Window> all = windows(side, new_side);
  std::vector<uint8_t> narrow(static_cast<size_t>(side * new_side));
  shrink_axis(all, {side, side, 1, new_side, 1}, picture.data(), narrow.data());
  std::vector<uint8_t> result(static_cast<size_t>(new_side * new_side));
  shrink_axis(all, {new_side, 1, new_side, 1, new_side}, narrow.data(), result.data());
  return result;
}

}  // namespace edgewise::data
