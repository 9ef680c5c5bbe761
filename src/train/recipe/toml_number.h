// A number as TOML, in files and in messages: the shortest text that reads back to the same number. TOML++
// prints 17 digits, 0.10000000000000001 for 0.1.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <sstream>
#include <string>

namespace edgewise::train {

inline std::string toml_number(double value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  const bool is_whole = text.find_first_of(".e") == std::string::npos;
  return std::isfinite(value) && is_whole ? text + ".0" : text;
}

template <typename Value>
concept HoldsDouble = requires(const Value& value) {
  { value.get() } -> std::same_as<const double&>;
};

// Any single value of TOML++; a template, so that who writes numbers alone need not read its header.
template <typename Node>
std::string toml_text(const Node& node) {
  std::ostringstream text;
  node.visit([&]<typename Value>(const Value& value) {
    if constexpr (HoldsDouble<Value>)
      text << toml_number(value.get());
    else
      text << value;
  });
  return text.str();
}

}  // namespace edgewise::train
