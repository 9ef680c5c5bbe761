// What Unicode says about a code point, as far as cutting and comparing text needs it. The tables are
// generated: tools/write-unicode-table.
#pragma once

#include <cstdint>
#include <string>

namespace edgewise::data {

enum class CharClass : uint8_t {
  kOther = 0,  // marks, controls, unassigned ones and loose bytes too
  kLetter = 1,
  kNumber = 2,
  kSpace = 3,  // the property White_Space
  kPunctuation = 4,
  kSymbol = 5,
};

CharClass char_class(uint32_t code_point);

// What Python's str.split() divides at: White_Space and the four separators of ASCII.
inline bool is_python_space(uint32_t code_point) {
  return (code_point >= 0x1C && code_point <= 0x1F) || char_class(code_point) == CharClass::kSpace;
}

// Python's str.lower().
std::u32string lower_case(const std::u32string& text);

}  // namespace edgewise::data
