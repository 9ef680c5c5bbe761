// UTF-8, one code point at a time, over any bytes: what is not valid UTF-8 is taken byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace edgewise::data {

// Values from here on stand for one byte each that belongs to no valid sequence.
inline constexpr uint32_t kLooseByte = 0x110000;

struct CodePoint {
  uint32_t value = 0;   // below kLooseByte, or kLooseByte + the byte
  uint32_t length = 1;  // bytes
};

// The code point at text[at]; at < text.size(). Overlong forms, surrogates and what is cut are loose bytes.
inline CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t first = byte(at);
  if (first < 0x80) return {first, 1};
  const uint32_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() - at < length) return {kLooseByte + first, 1};
  uint32_t value = first & (0x7Fu >> length);
  for (uint32_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {kLooseByte + first, 1};
    value = value << 6 | (byte(at + i) & 0x3F);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  if (overlong || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return {kLooseByte + first, 1};
  return {value, length};
}

inline void append_utf8(std::string& text, uint32_t value) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(static_cast<uint8_t>(byte)); };
  if (value >= kLooseByte) {
    put(value - kLooseByte);
  } else if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

// All code points, loose bytes among them; to_utf8 gives the same bytes back.
inline std::u32string code_points(std::string_view text) {
  std::u32string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    result += static_cast<char32_t>(point.value);
    at += point.length;
  }
  return result;
}

inline std::string to_utf8(std::u32string_view points) {
  std::string result;
  result.reserve(points.size());
  for (const char32_t point : points) append_utf8(result, point);
  return result;
}

}  // namespace edgewise::data
