#include <edgewise/data/byte_tokenizers.h>

#include <cstdio>

#include "data/text/failure.h"

namespace edgewise::data {
namespace {

// 'a', and 0x0a for what cannot be shown.
std::string shown_byte(uint8_t byte) {
  if (byte > ' ' && byte <= '~') return std::string(1, static_cast<char>(byte));
  char text[5];
  std::snprintf(text, sizeof(text), "0x%02x", byte);
  return text;
}

}  // namespace

void BytesTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  for (const char c : text) ids.push_back(1 + static_cast<uint8_t>(c));
}

std::string BytesTokenizer::decode(std::span<const int32_t> ids, bool leave_out_special) const {
  std::string text;
  for (const int32_t id : ids) {
    check_id(id, "bytes");
    if (id > 0) {
      text += static_cast<char>(static_cast<uint8_t>(id - 1));
    } else if (!leave_out_special) {
      text += "<pad>";
    }
  }
  return text;
}

std::string BytesTokenizer::piece(int32_t id) const {
  check_id(id, "bytes");
  return id == 0 ? "<pad>" : shown_byte(static_cast<uint8_t>(id - 1));
}

CharactersTokenizer::CharactersTokenizer(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {
  ids_.fill(-1);
  for (size_t id = 0; id < bytes_.size(); ++id) {
    if (ids_[bytes_[id]] >= 0) fail("characters: expected each byte once; found ", int{bytes_[id]}, " twice");
    ids_[bytes_[id]] = static_cast<int32_t>(id);
  }
}

void CharactersTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (ids_[byte] < 0)
      fail("characters: expected the ", bytes_.size(), " bytes of the vocabulary; found ", shown_byte(byte),
           " at byte ", at, " of the text");
    ids.push_back(ids_[byte]);
  }
}

std::string CharactersTokenizer::decode(std::span<const int32_t> ids, bool) const {
  std::string text;
  for (const int32_t id : ids) {
    check_id(id, "characters");
    text += static_cast<char>(bytes_[static_cast<size_t>(id)]);
  }
  return text;
}

std::string CharactersTokenizer::piece(int32_t id) const {
  check_id(id, "characters");
  return shown_byte(bytes_[static_cast<size_t>(id)]);
}

}  // namespace edgewise::data
