// PNG files, through libpng. Reading: pictures of up to 8 bits a channel as red, green and blue; and grey
// ones of a known size (8 bits, grey or colour with three equal channels, not interlaced), what Pathfinder's
// release uses. Writing: grey or colour, for reports.
#pragma once

#include <edgewise/data/images/picture.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::data {

// The file of a picture with 1 (grey) or 3 (red, green, blue) bytes per pixel, row-major.
std::string encode_png(int64_t width, int64_t height, int64_t channels, std::span<const uint8_t> pixels);

// The pixels [height, width] of a picture of exactly that size. Another size is refused from the file's
// header, before anything is allocated or unpacked for it.
std::vector<uint8_t> read_grey_png(const std::filesystem::path& path, int64_t width, int64_t height);

// Of a file in memory, which `name` stands for in messages. Palettes are looked up, opacity is left out. A
// picture of more pixels than `most`, or of 16 bits a channel, is refused from its header.
bool is_png(std::string_view file);
PictureSize png_size(std::string_view file, const std::string& name, int64_t most = kMostPixels);
Picture decode_png(std::string_view file, const std::string& name, int64_t most = kMostPixels);

}  // namespace edgewise::data
