// Grey PNG files: 8 bits per pixel, grey or colour with three equal channels; no interlacing. What
// Pathfinder's release uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace edgewise::data {

struct GreyImage {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels;  // row-major
};

GreyImage read_png(const std::filesystem::path& path);

}  // namespace edgewise::data
