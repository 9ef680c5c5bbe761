// Scales, round tick values and their labels, thinning of long series.
#include "plot/svg_scale.h"

#include <algorithm>
#include <cmath>

#include "plot/svg_text.h"

namespace edgewise::train::svg {
namespace {

// 1, 2 or 5 times a power of ten.
double nice_step(double range, int about) {
  const double raw = range / std::max(1, about);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw * 0.999) return factor * power;
  }
  return 10 * power;
}

std::string superscript(int value) {
  static const char* const kDigits[] = {"\u2070", "\u00b9", "\u00b2", "\u00b3", "\u2074",
                                        "\u2075", "\u2076", "\u2077", "\u2078", "\u2079"};
  std::string result;
  for (const char c : std::to_string(value)) result += c == '-' ? "\u207b" : kDigits[c - '0'];
  return result;
}

std::string with_minus(std::string text) {
  if (!text.starts_with('-')) return text;
  std::string result = "\u2212";
  return result += text.substr(1);
}

std::string power_label(double factor, int exponent) {
  std::string result = factor == 1 ? "10" : fixed(factor, 0) + "\u00b710";
  return result += superscript(exponent);
}

int decimals_of(double step) {
  // Half a thousandth of slack: log10(0.001) may come out as -2.9999.
  return std::max(0, static_cast<int>(-std::floor(std::log10(step) + 5e-4)));
}

struct Unit {
  double size;
  const char* suffix;
};

Unit unit_for(double largest) {
  for (const Unit unit : {Unit{1e12, "T"}, Unit{1e9, "G"}, Unit{1e6, "M"}, Unit{1e3, "k"}}) {
    // Four digits are still easily read: 2000, but 20k.
    if (largest >= unit.size * (unit.size == 1e3 ? 10 : 1)) return unit;
  }
  return {1, ""};
}

std::vector<Tick> linear_ticks(const Scale& scale, int about) {
  const double range = scale.high - scale.low;
  const double step = nice_step(range, about);
  const double first = std::ceil(scale.low / step - 1e-9), last = std::floor(scale.high / step + 1e-9);
  const double largest = std::max(std::fabs(scale.low), std::fabs(scale.high));
  std::vector<Tick> ticks;
  // Where doubles lie further apart than ticks there is nothing to count.
  if (!(last - first < 100) || first + 1 == first) return ticks;
  for (double i = first; i <= last; ++i) {
    const double value = i * step;
    std::string label;
    if (value == 0) {
      label = "0";
    } else if (largest >= 1e15 || largest < 1e-3) {
      const int exponent = static_cast<int>(std::floor(std::log10(largest)));
      const double power = std::pow(10.0, exponent);
      label = fixed(value / power, decimals_of(step / power)) + "\u00b710" + superscript(exponent);
    } else {
      const Unit unit = unit_for(largest);
      label = fixed(value / unit.size, decimals_of(step / unit.size)) + unit.suffix;
    }
    ticks.push_back({value, with_minus(label)});
  }
  return ticks;
}

std::string log_label(double factor, int exponent) {
  if (exponent < -3 || exponent > 5) return power_label(factor, exponent);
  const double value = factor * std::pow(10.0, exponent);
  const Unit unit = unit_for(value);
  return fixed(value / unit.size, std::max(0, -exponent)) + unit.suffix;
}

std::vector<Tick> log_ticks(const Scale& scale, int about) {
  const double low = std::log10(scale.low), high = std::log10(scale.high);
  const int first = static_cast<int>(std::floor(low)), last = static_cast<int>(std::ceil(high));
  const int decades = static_cast<int>(std::floor(high + 1e-9) - std::ceil(low - 1e-9)) + 1;
  const int stride = std::max(1, (decades + about - 1) / about);
  const std::vector<double> factors = decades <= 2 ? std::vector<double>{1, 2, 5} : std::vector<double>{1};
  std::vector<Tick> ticks;
  for (int exponent = first; exponent <= last; ++exponent) {
    if (exponent % stride != 0) continue;
    for (const double factor : factors) {
      const double value = factor * std::pow(10.0, exponent);
      if (value >= scale.low * (1 - 1e-9) && value <= scale.high * (1 + 1e-9)) {
        ticks.push_back({value, log_label(factor, exponent)});
      }
    }
  }
  // Within less than a decade there may be too few round numbers; evenly spaced ones serve as well.
  return ticks.size() >= 3 ? ticks : linear_ticks({scale.low, scale.high, false}, about);
}

}  // namespace

bool can_draw(double value, bool log) {
  return std::isfinite(value) && std::fabs(value) <= kLargestValue && (!log || value >= 1 / kLargestValue);
}

double Scale::position(double value) const {
  if (log) return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
  return (value - low) / (high - low);
}

Scale make_scale(double low, double high, bool log, double margin) {
  if (log) {
    const double a = std::log10(low), b = std::log10(high);
    const double pad = std::max((b - a) * margin, b - a < 1e-6 ? 0.5 : 0.0);
    return {std::pow(10.0, a - pad), std::pow(10.0, b + pad), true};
  }
  const double largest = std::max(std::fabs(low), std::fabs(high));
  const bool flat = high - low <= largest * 1e-9;
  const double pad = flat ? (largest > 0 ? 0.1 * largest : 0.5) : (high - low) * margin;
  return {low - pad, high + pad, false};
}

std::vector<Tick> make_ticks(const Scale& scale, int about) {
  return scale.log ? log_ticks(scale, about) : linear_ticks(scale, about);
}

std::vector<long> thin_series(const std::vector<double>& x, const std::vector<double>& y, bool log_y,
                              long most) {
  const long size = static_cast<long>(y.size());
  const auto drawable = [&](long i) {
    const auto at = static_cast<size_t>(i);
    return can_draw(x[at], false) && can_draw(y[at], log_y);
  };
  // Two points per stretch.
  const long stretches = std::max(1L, most / 2);
  std::vector<long> kept;
  const auto keep = [&](long i) {
    if (kept.empty() || kept.back() != i) kept.push_back(i);
  };
  if (size <= most) {
    for (long i = 0; i < size; ++i) keep(drawable(i) ? i : -1);
    return kept;
  }
  for (long s = 0; s < stretches; ++s) {
    const long begin = size * s / stretches, end = size * (s + 1) / stretches;
    long least = -1, greatest = -1;
    bool interrupted = false;
    for (long i = begin; i < end; ++i) {
      if (!drawable(i)) {
        interrupted = true;
        continue;
      }
      if (least < 0 || y[static_cast<size_t>(i)] < y[static_cast<size_t>(least)]) least = i;
      if (greatest < 0 || y[static_cast<size_t>(i)] > y[static_cast<size_t>(greatest)]) greatest = i;
    }
    if (least >= 0) {
      if (s == 0 && drawable(0)) keep(0);
      keep(std::min(least, greatest));
      keep(std::max(least, greatest));
      if (s == stretches - 1 && drawable(size - 1)) keep(size - 1);
    }
    if (interrupted) keep(-1);
  }
  return kept;
}

}  // namespace edgewise::train::svg
