// Square grey images as raw files: images-Nx32x32.u8[.xz], row-major bytes one image after another, and
// labels-N.u8.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace edgewise::data {

inline constexpr int64_t kImageSide = 32;
inline constexpr int64_t kImagePixels = kImageSide * kImageSide;

struct RawImages {
  std::vector<uint8_t> pixels, labels;
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  std::span<const uint8_t> image(int64_t index) const {
    return std::span(pixels).subspan(static_cast<size_t>(index * kImagePixels), kImagePixels);
  }
};

// Nothing when the folder holds no file images-Nx32x32.u8 or images-Nx32x32.u8.xz.
std::optional<RawImages> read_raw_images(const std::filesystem::path& folder);

}  // namespace edgewise::data
