// SVG text elements, escaped and with numbers that no locale changes.
#include "plot/svg_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace edgewise::train::svg {
namespace {

// Length of the valid UTF-8 sequence at the start of `text`, 0 if there is none. Overlong forms and
// surrogates need not be told apart from valid ones here: XML parsers do refuse them, so they are counted as
// invalid.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xC2 && first < 0xE0 ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) >= 0xA0) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) >= 0x90) return 0;
  if (first == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE)
    return 0;  // U+FFFE and U+FFFF are not XML characters
  return length;
}

bool is_continuation(char c) {
  return (c & 0xC0) == 0x80;
}

std::string element(std::string_view position, std::string_view content, const TextStyle& style) {
  std::string result = "<text ";
  result += position;
  result += " font-size=\"" + number(style.size) + "\" text-anchor=\"";
  result += style.anchor;
  result += "\" fill=\"";
  result += style.fill;
  result += style.bold ? "\" font-weight=\"600\">" : "\">";
  result += escape(content);
  return result += "</text>\n";
}

}  // namespace

std::string escape(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    const char c = text[0];
    if (length == 0) {
      result += "\uFFFD";
    } else if (length > 1) {
      result += text.substr(0, length);
    } else if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '"') {
      result += "&quot;";
    } else if (c == '\'') {
      result += "&#39;";
    } else {
      result += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result;
}

std::string fixed(double value, int decimals) {
  char buffer[400];  // the longest double has 309 digits before the point
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed,
                                    std::clamp(decimals, 0, 20));
  return {buffer, result.ptr};
}

std::string number(double value) {
  std::string text = fixed(value, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

double text_width(std::string_view text, double size) {
  const auto letters = std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); });
  return 0.6 * size * static_cast<double>(letters);
}

std::string shorten(std::string_view text, double size, double room) {
  if (text_width(text, size) <= room) return std::string(text);
  const auto letters = static_cast<int64_t>(room / (0.6 * size)) - 1;
  size_t end = 0;
  for (int64_t used = 0; end < text.size(); ++end) {
    if (!is_continuation(text[end]) && ++used > letters) break;
  }
  std::string result(text.substr(0, end));
  return result += "\u2026";
}

std::string text(double x, double y, std::string_view content, const TextStyle& style) {
  return element("x=\"" + number(x) + "\" y=\"" + number(y) + "\"", content, style);
}

std::string vertical_text(double x, double y, std::string_view content, const TextStyle& style) {
  return element("transform=\"translate(" + number(x) + " " + number(y) + ") rotate(-90)\"", content, style);
}

std::string line(double x1, double y1, double x2, double y2, std::string_view attributes) {
  std::string result = "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
                       "\" y2=\"" + number(y2) + "\" ";
  result += attributes;
  return result += "/>\n";
}

}  // namespace edgewise::train::svg
