// Probes in units: squares of 16 queries and 16 keys of which each is chosen with the probes' rate, and all
// absent pairs of a chosen one are probes. So a pair is probed with the same probability as on its own, and
// 16 neighbouring queries, or keys, meet few others through probes. CPU and CUDA draw the same units.
#pragma once

#include <cstdint>

#include "kernels/pair_numbers.h"

namespace edgewise::kernels {

inline constexpr int kProbeUnit = 16;
inline constexpr uint32_t kUnitLane = 11;  // beside the lanes of philox.h and pair_numbers.h

// The numbers of four neighbouring units: row `row_unit` of units, columns 4 call .. 4 call + 3.
EDGEWISE_BOTH PairWords unit_numbers(uint64_t key, uint32_t row_unit, uint32_t call) {
  return philox7(row_unit, call, 0, kUnitLane, key);
}
// A unit is chosen when its number is below this.
EDGEWISE_BOTH double unit_limit(double rate) {
  return rate * 4294967296.0;
}

}  // namespace edgewise::kernels
