#include "train/recipe/toml_depth.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace edgewise::train {
namespace {

constexpr int kMostParts = 16, kMostBrackets = 16;  // recipes have 3 and 1

// Where the string that begins at `at` ends, behind its quotes; the end of the text where it does not.
size_t behind_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string_view three = quote == '"' ? R"(""")" : "'''";
  const bool is_long = text.substr(at).starts_with(three);
  for (at += is_long ? 3 : 1; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (is_long ? text.substr(at).starts_with(three) : text[at] == quote || text[at] == '\n') {
      return at + (is_long ? 3 : 1);
    }
  }
  return text.size();
}

}  // namespace

std::optional<int64_t> too_deep_line(std::string_view text) {
  int64_t line = 1, dots = 0, brackets = 0;
  size_t counted = 0;  // how far lines are counted
  for (size_t at = 0; at < text.size();) {
    for (; counted < at; ++counted) line += text[counted] == '\n';
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = behind_string(text, at);
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '.') ++dots;
    if (c == '[' || c == '{') ++brackets;
    if ((c == ']' || c == '}') && brackets > 0) --brackets;
    if (c == '\n' || c == '=' || c == ',' || c == '[' || c == '{') dots = 0;
    if (dots >= kMostParts || brackets > kMostBrackets) return line;
    ++at;
  }
  return std::nullopt;
}

void check_toml_depth(std::string_view text, const std::string& name) {
  const std::optional<int64_t> line = too_deep_line(text);
  TORCH_CHECK_VALUE(!line, name, ":", line.value_or(0), ": expected keys of at most ", kMostParts,
                    " parts and at most ", kMostBrackets, " brackets within each other; found more");
}

}  // namespace edgewise::train
