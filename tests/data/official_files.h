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

inline std::string little_endian32(uint32_t value) {
  const std::string bytes = big_endian32(value);
  return {bytes.rbegin(), bytes.rend()};
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

// A batch of CIFAR-10's Python version as Python 2's cPickle writes it (protocol 2, byte strings).
inline std::string cifar_pickle(const std::vector<int>& labels, const std::string& data) {
  using namespace std::string_literals;
  std::string text =
      "\x80\x02}q\x01(U\x0b"s + "batch_labelq\x02U\x05"s + "firstq\x03U\x06labelsq\x04]q\x05("s;
  for (const int label : labels) text += "K"s + static_cast<char>(label);
  text +=
      "eU\x04"s + "dataq\x06"s + "cnumpy.core.multiarray\n_reconstruct\nq\x07"s + "cnumpy\nndarray\nq\x08"s;
  text += "K\0\x85U\x01"s + "b\x87Rq\x09(K\x01K"s + static_cast<char>(labels.size()) + "M\0\x0c\x86"s;
  text += "cnumpy\ndtype\nq\x0aU\x02u1K\0K\x01\x87R(K\x03U\x01|NNN"s;
  text += "J\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89T"s;
  return text + little_endian32(static_cast<uint32_t>(data.size())) + data + "tbu."s;
}

// Red, green and blue planes of one colour each.
inline std::string colour_planes(uint8_t red, uint8_t green, uint8_t blue) {
  return std::string(1024, static_cast<char>(red)) + std::string(1024, static_cast<char>(green)) +
         std::string(1024, static_cast<char>(blue));
}

}  // namespace edgewise::data
