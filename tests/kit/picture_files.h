// Pictures that tests write: JPEG files by libjpeg, and generated shapes in folders of classes.
#pragma once

#include <cstdio>  // jpeglib.h needs FILE

#include <jpeglib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "data/readers/png.h"

namespace edgewise::kit {

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// pixels: [height, width, channels], 1 grey, 3 colour or 4 inks.
inline std::string jpeg_of(int height, int width, int channels, std::vector<uint8_t> pixels,
                           int quality = 100) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &bytes, &size);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.input_components = channels;
  jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = pixels.data() + jpeg.next_scanline * static_cast<size_t>(width * channels);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  const std::string result(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&jpeg);
  std::free(bytes);
  return result;
}

// One colour everywhere.
inline std::vector<uint8_t> plain_pixels(int height, int width, uint8_t red, uint8_t green, uint8_t blue) {
  std::vector<uint8_t> pixels;
  for (int n = 0; n < height * width; ++n) pixels.insert(pixels.end(), {red, green, blue});
  return pixels;
}

// A small bright bar somewhere on noise: lying for class 0, standing for class 1. [side, side, 3]
inline std::vector<uint8_t> bar_pixels(int side, int label, uint32_t number) {
  uint32_t state = number * 2654435761u + 12345;
  const auto next = [&](int below) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int>((state >> 8) % static_cast<uint32_t>(below));
  };
  std::vector<uint8_t> pixels(static_cast<size_t>(3 * side * side));
  for (uint8_t& each : pixels) each = static_cast<uint8_t>(next(60));
  const int length = side / 2, top = next(side - (label == 1 ? length : 0)),
            left = next(side - (label == 0 ? length : 0));
  for (int n = 0; n < length; ++n) {
    const int y = top + (label == 1 ? n : 0), x = left + (label == 0 ? n : 0);
    for (int colour = 0; colour < 3; ++colour)
      pixels[static_cast<size_t>(3 * (y * side + x) + colour)] = static_cast<uint8_t>(200 + next(56));
  }
  return pixels;
}

// train, validation and test of lying and standing bars, as PNG files.
inline void write_bars(const std::filesystem::path& root, int side, int train, int others) {
  uint32_t number = 0;
  for (const auto& [split, count] :
       {std::pair<std::string, int>{"train", train}, {"validation", others}, {"test", others}})
    for (int label = 0; label < 2; ++label)
      for (int n = 0; n < count / 2; ++n)
        write_file(root / split / (label == 0 ? "lying" : "standing") / (std::to_string(n) + ".png"),
                   data::encode_png(side, side, 3, bar_pixels(side, label, ++number)));
}

}  // namespace edgewise::kit
