// Repeats of a measurement as numbers, and when a busy machine has spoilt them.
#pragma once

#include <string>
#include <vector>

namespace edgewise::app {

struct Timing {
  double median_ms = 0;
  double spread = 0;   // (third quartile - first quartile) / median
  double best_ms = 0;  // the least disturbed repeat

  // Median over best repeat: far above 1 where others disturb.
  double disturbance() const { return median_ms / best_ms; }
};

// Of at least one repeat, in any order.
Timing timing_of(std::vector<double> repeats_ms);

// What to say of the largest disturbance among the measurements; empty where medians can be trusted.
std::string disturbance_warning(double largest);

}  // namespace edgewise::app
