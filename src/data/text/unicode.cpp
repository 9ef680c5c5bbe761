#include "data/text/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace edgewise::data {
namespace {

struct LowerRun {
  uint32_t first, last, step;
  int32_t distance;
};

#include "data/text/unicode_table.inc"

constexpr char32_t kSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2, kDottedI = 0x130;

// The low three bits of the last run that begins at or before the code point.
template <size_t N>
uint32_t run_value(const uint32_t (&runs)[N], uint32_t code_point) {
  return *std::prev(std::upper_bound(std::begin(runs), std::end(runs), code_point << 3 | 7)) & 7;
}

std::array<CharClass, 256> first_classes() {
  std::array<CharClass, 256> classes{};
  for (uint32_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<CharClass>(run_value(kClassRuns, i));
  return classes;
}

uint32_t sigma_class(char32_t point) {
  return point > 0x10FFFF ? 0 : run_value(kSigmaRuns, point);
}

// A capital sigma is final after a cased letter and before none, apostrophes and the like left aside.
bool is_final_sigma(const std::u32string& text, size_t at) {
  size_t before = at;
  while (before > 0 && sigma_class(text[before - 1]) == 2) --before;
  if (before == 0 || sigma_class(text[before - 1]) != 1) return false;
  size_t after = at + 1;
  while (after < text.size() && sigma_class(text[after]) == 2) ++after;
  return after == text.size() || sigma_class(text[after]) != 1;
}

}  // namespace

CharClass char_class(uint32_t code_point) {
  static const std::array<CharClass, 256> kFirst = first_classes();
  if (code_point < kFirst.size()) return kFirst[code_point];
  if (code_point > 0x10FFFF) return CharClass::kOther;
  return static_cast<CharClass>(run_value(kClassRuns, code_point));
}

std::u32string lower_case(const std::u32string& text) {
  std::u32string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    const char32_t point = text[at];
    if (point == kSigma) {
      result += is_final_sigma(text, at) ? kFinalSigma : kSmallSigma;
    } else if (point == kDottedI) {
      result += {U'i', char32_t{0x307}};  // the only one that becomes two
    } else {
      const auto* const run =
          std::upper_bound(std::begin(kLowerRuns), std::end(kLowerRuns), point,
                           [](char32_t wanted, const LowerRun& each) { return wanted < each.first; });
      const LowerRun* const found = run == std::begin(kLowerRuns) ? nullptr : run - 1;
      const bool maps = found != nullptr && point <= found->last && (point - found->first) % found->step == 0;
      result += maps ? static_cast<char32_t>(static_cast<int64_t>(point) + found->distance) : point;
    }
  }
  return result;
}

}  // namespace edgewise::data
