// The printable characters that stand for bytes in the files of byte-level BPE.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace edgewise::data {

// The code point of a byte: 33..126, 161..172 and 174..255 themselves, the others 256, 257 ... in their
// order.
uint32_t byte_symbol(uint8_t byte);

std::string spell_bytes(std::string_view bytes);
// Nothing when a character stands for no byte.
std::optional<std::string> bytes_of_spelling(std::string_view piece);

}  // namespace edgewise::data
