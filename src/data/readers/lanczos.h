// Shrinking grey pictures with the Lanczos filter of three lobes, in the fixed-point arithmetic of Pillow's
// Image.resize: rows first, then columns, each rounded to bytes.
#pragma once

#include <cstdint>
#include <vector>

namespace edgewise::data {

// [side, side] -> [new_side, new_side]
std::vector<uint8_t> shrink_lanczos(const std::vector<uint8_t>& picture, int side, int new_side);

}  // namespace edgewise::data
