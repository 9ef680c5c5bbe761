// Lanes of a stream's key (philox.h, pair_numbers.h) that walks over nodes use.
#pragma once

#include <cstdint>

namespace edgewise::kernels {

// (row, prediction): words 0 and 1 the uniform number of one action.
inline constexpr uint32_t kWalkLane = 8;
inline constexpr uint32_t kRowChoiceLane = 9;  // (0, n): which row is looked at n-th

}  // namespace edgewise::kernels
