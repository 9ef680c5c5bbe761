// Tiny data sets in the formats of the official distributions, written by the tests themselves.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace edgewise::data {

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string unhex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

inline std::string big_endian32(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

inline std::string png_chunk(const std::string& kind, const std::string& data) {
  const std::string body = kind + data;
  const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
  return big_endian32(static_cast<uint32_t>(data.size())) + body + big_endian32(static_cast<uint32_t>(sum));
}

// An 8-bit grey PNG without filters.
inline std::string grey_png(uint32_t width, uint32_t height, const std::string& pixels) {
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) rows += '\0' + pixels.substr(y * width, width);
  std::string packed(compressBound(rows.size()), '\0');
  uLongf size = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(rows.data()),
           rows.size());
  packed.resize(size);
  const std::string kind_of_pixels({8, 0, 0, 0, 0});
  return "\x89PNG\r\n\x1a\n" +
         png_chunk("IHDR", big_endian32(width) + big_endian32(height) + kind_of_pixels) +
         png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

// Red, green and blue planes of one colour each.
inline std::string colour_planes(uint8_t red, uint8_t green, uint8_t blue) {
  return std::string(1024, static_cast<char>(red)) + std::string(1024, static_cast<char>(green)) +
         std::string(1024, static_cast<char>(blue));
}

}  // namespace edgewise::data
