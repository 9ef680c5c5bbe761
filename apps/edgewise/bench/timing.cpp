#include "bench/timing.h"

#include <algorithm>

#include "table.h"

namespace edgewise::app {

Timing timing_of(std::vector<double> repeats_ms) {
  std::sort(repeats_ms.begin(), repeats_ms.end());
  const auto quantile = [&](double q) {
    return repeats_ms[static_cast<size_t>(q * static_cast<double>(repeats_ms.size() - 1))];
  };
  return {quantile(0.5), (quantile(0.75) - quantile(0.25)) / quantile(0.5), repeats_ms.front()};
}

std::string disturbance_warning(double largest) {
  constexpr double kTrusted = 2;  // on a machine left alone medians are within a quarter of the best
  if (largest < kTrusted) return {};
  return "this machine is busy: a median is " + fixed(largest, 1) +
         " times its best repeat, so medians and ratios are not to be trusted. Where other programs run, "
         "threads that spin while they wait cost most; OMP_WAIT_POLICY=passive in front of the command cures "
         "that";
}

}  // namespace edgewise::app
