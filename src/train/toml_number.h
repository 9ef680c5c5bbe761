// A number as TOML, in files and in messages: the shortest text that reads back to the same number. TOML++
// prints 17 digits, 0.10000000000000001 for 0.1.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <sstream>
#include <string>
#include <type_traits>

namespace edgewise::train {

inline std::string toml_number(double value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  const bool is_whole = text.find_first_of(".e") == std::string::npos;
  return std::isfinite(value) && is_whole ? text + ".0" : text;
}

// Any single value of TOML++; a template, so that who writes numbers alone need not read its header.
template <typename Node>
std::string toml_text(const Node& node) {
  std::ostringstream text;
  node.visit([&](const auto& value) {
    if constexpr (requires {
                    requires std::is_same_v < std::decay_t<decltype(value.get())>,
                    double > ;
                  })
      text << toml_number(value.get());
    else
      text << value;
  });
  return text.str();
}

}  // namespace edgewise::train
