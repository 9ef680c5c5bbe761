#include <edgewise/train/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <c10/util/Exception.h>

namespace edgewise::train {
namespace {

// The constants of torch's OneCycleLR: div_factor, final_div_factor, base_momentum, max_momentum.
constexpr double kStartDivisor = 25;
constexpr double kEndDivisor = 1e4;
constexpr double kBeta1AtPeak = 0.85;
constexpr double kBeta1AtEnds = 0.95;

// Position between two steps, 1 when they coincide.
double fraction(double step, double from, double to) {
  return to > from ? (step - from) / (to - from) : 1;
}

}  // namespace

ScheduleKind parse_schedule(std::string_view name) {
  if (name == "one_cycle") return ScheduleKind::kOneCycle;
  if (name == "constant") return ScheduleKind::kConstant;
  if (name == "inverse_sqrt") return ScheduleKind::kInverseSqrt;
  if (name == "cosine") return ScheduleKind::kCosine;
  TORCH_CHECK_VALUE(false, "schedule: expected one_cycle, constant, inverse_sqrt or cosine; got '", name,
                    "'");
}

std::string_view to_string(ScheduleKind kind) {
  return kind == ScheduleKind::kOneCycle   ? "one_cycle"
         : kind == ScheduleKind::kConstant ? "constant"
         : kind == ScheduleKind::kCosine   ? "cosine"
                                           : "inverse_sqrt";
}

double RisingWeight::at(int64_t step) const {
  const int64_t risen = step - start;
  if (risen < 0) return 0;
  return risen >= warmup ? whole : whole * static_cast<double>(risen) / static_cast<double>(warmup);
}

Schedule::Schedule(const ScheduleOptions& options) : options_(options) {
  TORCH_CHECK_VALUE(options.peak > 0 && std::isfinite(options.peak),
                    "Schedule: expected a positive learning rate; got ", options.peak);
  TORCH_CHECK_VALUE(options.steps > 0, "Schedule: expected at least one step; got ", options.steps);
  TORCH_CHECK_VALUE(options.warmup >= 0 && options.warmup <= options.steps,
                    "Schedule: expected warmup in [0, ", options.steps, "], the length of the run; got ",
                    options.warmup);
}

SchedulePoint Schedule::at(int64_t step) const {
  TORCH_CHECK_INDEX(step >= 0 && step < options_.steps, "Schedule: expected a step in [0, ", options_.steps,
                    "); got ", step);
  if (options_.kind == ScheduleKind::kConstant) return {options_.peak, 0.9};
  if (options_.kind == ScheduleKind::kInverseSqrt || options_.kind == ScheduleKind::kCosine) {
    const double update = static_cast<double>(step + 1),
                 warmup = static_cast<double>(std::max<int64_t>(options_.warmup, 1));
    if (update < warmup)
      return {options_.initial + update * (options_.peak - options_.initial) / warmup, 0.9};
    if (options_.kind == ScheduleKind::kInverseSqrt) return {options_.peak * std::sqrt(warmup / update), 0.9};
    const double t = (update - warmup) / (static_cast<double>(options_.steps) + 1 - warmup);
    return {options_.peak * (1 + std::cos(std::numbers::pi * t)) / 2, 0.9};
  }
  const double start = options_.peak / kStartDivisor, end = start / kEndDivisor;
  const double now = static_cast<double>(step);
  const double peak_step = static_cast<double>(options_.warmup - 1),
               last_step = static_cast<double>(options_.steps - 1);
  if (now <= peak_step) {
    const double t = fraction(now, 0, peak_step);
    return {start + t * (options_.peak - start), kBeta1AtEnds + t * (kBeta1AtPeak - kBeta1AtEnds)};
  }
  const double t = fraction(now, peak_step, last_step);
  return {options_.peak + t * (end - options_.peak), kBeta1AtPeak + t * (kBeta1AtEnds - kBeta1AtPeak)};
}

}  // namespace edgewise::train
