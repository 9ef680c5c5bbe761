// numpy's .npy files: arrays of at most two dimensions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace edgewise::data {

struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<double> values;  // row by row
};

// Of int32, int64, float32 or float64 in C order. `origin` stands for the file in messages.
NpyArray read_npy(std::span<const uint8_t> bytes, const std::string& origin);

}  // namespace edgewise::data
