// One batch file of CIFAR-10's Python version: a pickled dict with the keys data (uint8 array [n, 3072]) and
// labels (list).
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace edgewise::data {

struct CifarPickle {
  std::vector<uint8_t> data;    // [n, 3072]
  std::vector<int64_t> labels;  // [n], 0..9
};

CifarPickle read_cifar_pickle(const std::filesystem::path& path);

}  // namespace edgewise::data
