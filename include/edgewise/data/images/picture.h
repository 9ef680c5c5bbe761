// Pictures as files: JPEG and PNG, told apart by their first bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::data {

// Pictures of more pixels than this are refused: a header of a few bytes may promise any size.
inline constexpr int64_t kMostPixels = int64_t{1} << 27;

struct PictureSize {
  int64_t height = 0, width = 0;
  bool operator==(const PictureSize&) const = default;
};

struct Picture {
  PictureSize size;
  std::vector<uint8_t> pixels;  // [height, width, 3]: red, green, blue
};

// Grey pictures become red = green = blue; opacity is left out. Throws, naming the file, for what is damaged,
// has 16 bits a channel or four inks (CMYK), or is no picture at all.
PictureSize picture_size(const std::filesystem::path& path);
Picture read_picture(const std::filesystem::path& path);

}  // namespace edgewise::data
