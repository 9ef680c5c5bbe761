// Lanes of a stream's key (philox.h, pair_numbers.h) that walks over nodes use.
#pragma once

#include <cstdint>

namespace edgewise::kernels {

inline constexpr uint32_t kWalkLane = 8;        // (row, prediction): the uniform number of one action
inline constexpr uint32_t kRowChoiceLane = 9;   // (0, n): which row is looked at n-th
inline constexpr uint32_t kWalkBlockLane = 10;  // (row, prediction): that of the block it lies in

}  // namespace edgewise::kernels
