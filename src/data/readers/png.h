// PNG files. Reading: grey pictures (8 bits, grey or colour with three equal channels, not interlaced), what
// Pathfinder's release uses. Writing: grey or colour, for reports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace edgewise::data {

struct GreyImage {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels;  // row-major
};

// The file of a picture with 1 (grey) or 3 (red, green, blue) bytes per pixel, row-major.
std::string encode_png(int64_t width, int64_t height, int64_t channels, std::span<const uint8_t> pixels);

GreyImage read_png(const std::filesystem::path& path);

}  // namespace edgewise::data
