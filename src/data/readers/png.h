// PNG files, through libpng. Reading: grey pictures of a known size (8 bits, grey or colour with three equal
// channels, not interlaced), what Pathfinder's release uses. Writing: grey or colour, for reports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace edgewise::data {

// The file of a picture with 1 (grey) or 3 (red, green, blue) bytes per pixel, row-major.
std::string encode_png(int64_t width, int64_t height, int64_t channels, std::span<const uint8_t> pixels);

// The pixels [height, width] of a picture of exactly that size. Another size is refused from the file's
// header, before anything is allocated or unpacked for it.
std::vector<uint8_t> read_grey_png(const std::filesystem::path& path, int64_t width, int64_t height);

}  // namespace edgewise::data
