// How subword-nmt divides a line into words and marks their ends.
#pragma once

#include <cstddef>
#include <string_view>

namespace edgewise::data {

inline constexpr std::string_view kWordEnd = "</w>";  // at the end of a word's last symbol

// The words of a line: blanks and line ends at both ends are left aside, then only blanks divide.
template <typename Use>
void each_word(std::string_view line, const Use& use) {
  constexpr std::string_view kEnds = "\r\n ";
  const size_t begin = line.find_first_not_of(kEnds);
  if (begin == std::string_view::npos) return;
  line = line.substr(begin, line.find_last_not_of(kEnds) + 1 - begin);
  while (!line.empty()) {
    const size_t end = line.find(' ');
    if (end != 0) use(line.substr(0, end));
    if (end == std::string_view::npos) return;
    line.remove_prefix(end + 1);
  }
}

}  // namespace edgewise::data
