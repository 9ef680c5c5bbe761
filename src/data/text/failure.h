// Errors of the text code, which does without torch: one line, as std::invalid_argument.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace edgewise::data {

template <typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw std::invalid_argument(message.str());
}

// A piece of text for a message: short, quoted and printable.
inline std::string in_quotes(std::string_view text) {
  constexpr size_t kLimit = 40;
  std::string result = "'";
  for (const char c : text.substr(0, kLimit)) {
    const bool control = static_cast<unsigned char>(c) < ' ' || c == 0x7F;
    result += control ? '?' : c;
  }
  while (text.size() > kLimit && !result.empty() &&
         (static_cast<unsigned char>(result.back()) & 0xC0) == 0x80)
    result.pop_back();  // no half character at the cut
  return result + (text.size() > kLimit ? "...'" : "'");
}

}  // namespace edgewise::data
