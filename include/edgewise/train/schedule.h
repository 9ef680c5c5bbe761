// Learning-rate schedules: pure functions of the step, so resuming needs no state.
#pragma once

#include <cstdint>
#include <string_view>

namespace edgewise::train {

// kOneCycle: linear from peak/25 to the peak at step warmup - 1, then linear to peak/250000 at the last step,
// while beta1 runs 0.95 -> 0.85 -> 0.95. This is torch's OneCycleLR(anneal_strategy="linear",
// pct_start=warmup/steps). kConstant: the peak and beta1 = 0.9 throughout. kInverseSqrt: in update u = 1, 2,
// ... initial + u (peak - initial) / warmup up to the warm-up's end, then peak sqrt(warmup / u); beta1 = 0.9.
// kCosine: the same warm-up, then peak (1 + cos(pi (u - warmup) / (steps + 1 - warmup))) / 2.
enum class ScheduleKind { kOneCycle, kConstant, kInverseSqrt, kCosine };
ScheduleKind parse_schedule(std::string_view name);  // "one_cycle" | "constant" | "inverse_sqrt" | "cosine"
std::string_view to_string(ScheduleKind kind);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kOneCycle;
  double peak = 5e-4;
  int64_t steps = 1;   // T, length of the run
  int64_t warmup = 0;  // steps until the peak
  double initial = 0;  // kInverseSqrt, kCosine: where the warm-up begins
};

struct SchedulePoint {
  double learning_rate = 0;
  double beta1 = 0.9;
};

// A weight that is 0 before step `start` and rises linearly, from 0 there to `whole` after `warmup` steps
// more.
struct RisingWeight {
  double whole = 0;
  int64_t start = 0;
  int64_t warmup = 0;

  double at(int64_t step) const;
};

class Schedule {
 public:
  explicit Schedule(const ScheduleOptions& options);  // throws on a warm-up longer than the run
  SchedulePoint at(int64_t step) const;               // step in [0, T)

 private:
  ScheduleOptions options_;
};

}  // namespace edgewise::train
