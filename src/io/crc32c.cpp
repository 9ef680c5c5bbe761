// A table of 256 entries, one byte at a time: records are tens of bytes, speed does not matter.
#include "io/crc32c.h"

#include <array>

namespace edgewise::io {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  constexpr uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41 with its bits reversed
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? kPolynomial : 0);
    table[byte] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

}  // namespace edgewise::io
