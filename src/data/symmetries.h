// The symmetries of a square picture, by which one training picture stands for two (mirrored left to right)
// or eight (also turned by quarters).
#pragma once

#include <cstdint>
#include <vector>

namespace edgewise::data {

// For each of the first `count` symmetries and each place of a picture of side x side pixels in rows, the
// place its pixel comes from: [count, side * side]. The first symmetry is none, the second mirrors left to
// right.
std::vector<int32_t> symmetric_places(int64_t count, int64_t side);

}  // namespace edgewise::data
