#include "data/tokenizers/byte_symbols.h"

#include <array>

#include "data/text/utf8.h"

namespace edgewise::data {
namespace {

constexpr uint32_t kSymbols = 256 + 68;

struct Tables {
  std::array<uint16_t, 256> symbol{};
  std::array<int16_t, kSymbols> byte{};  // -1: no byte

  constexpr Tables() {
    byte.fill(-1);
    uint16_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      symbol[b] = printable ? static_cast<uint16_t>(b) : next++;
      byte[symbol[b]] = static_cast<int16_t>(b);
    }
  }
};
constexpr Tables kTables;

}  // namespace

uint32_t byte_symbol(uint8_t byte) {
  return kTables.symbol[byte];
}

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char c : bytes) append_utf8(spelling, byte_symbol(static_cast<uint8_t>(c)));
  return spelling;
}

std::optional<std::string> bytes_of_spelling(std::string_view piece) {
  std::string bytes;
  for (size_t at = 0; at < piece.size();) {
    const CodePoint point = code_point_at(piece, at);
    if (point.value >= kSymbols || kTables.byte[point.value] < 0) return std::nullopt;
    bytes += static_cast<char>(static_cast<uint8_t>(kTables.byte[point.value]));
    at += point.length;
  }
  return bytes;
}

}  // namespace edgewise::data
