// The tokens that BLEU compares: mteval-v13a and mteval-v14, as sacrebleu writes them.
#include <edgewise/data/bleu.h>

#include "data/text/unicode.h"
#include "data/text/utf8.h"

namespace edgewise::data {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_stop(char c) {
  return c == '.' || c == ',';
}

// ASCII punctuation but for ' , - . and, as in the original, the blank too.
bool stands_alone(char c) {
  return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string result;
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string::npos; found = text.find(from, at)) {
    result.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  if (at > 0) text = result.append(text, at);
}

// Where `matches` holds for two neighbours, they become what `write` appends, and the scan goes on behind
// them. The characters that decide are ASCII, so bytes do for code points.
template <typename Matches, typename Write>
std::string replace_pairs(const std::string& text, const Matches& matches, const Write& write) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  for (size_t at = 0; at < text.size();) {
    if (at + 1 < text.size() && matches(text[at], text[at + 1])) {
      write(result, text[at], text[at + 1]);
      at += 2;
    } else {
      result += text[at++];
    }
  }
  return result;
}

std::string tokens_13a(std::string text) {
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  std::string apart = " ";
  for (const char c : text) {
    if (stands_alone(c)) {
      apart += {' ', c, ' '};
    } else {
      apart += c;
    }
  }
  apart += ' ';
  apart = replace_pairs(
      apart, [](char a, char b) { return !is_digit(a) && is_stop(b); },
      [](std::string& out, char a, char b) {
        out += {a, ' ', b, ' '};
      });
  apart = replace_pairs(
      apart, [](char a, char b) { return is_stop(a) && !is_digit(b); },
      [](std::string& out, char a, char b) {
        out += {' ', a, ' ', b};
      });
  return replace_pairs(
      apart, [](char a, char b) { return is_digit(a) && b == '-'; },
      [](std::string& out, char a, char b) {
        out += {a, ' ', b, ' '};
      });
}

template <typename Matches>
std::u32string part_pairs(const std::u32string& text, bool after, const Matches& matches) {
  std::u32string result;
  for (size_t at = 0; at < text.size();) {
    if (at + 1 < text.size() && matches(char_class(text[at]), char_class(text[at + 1]))) {
      if (!after) result += U' ';
      result += {text[at], U' ', text[at + 1]};
      if (after) result += U' ';
      at += 2;
    } else {
      result += text[at++];
    }
  }
  return result;
}

std::u32string tokens_international(const std::u32string& text) {
  using enum CharClass;
  std::u32string apart =
      part_pairs(text, true, [](CharClass a, CharClass b) { return a != kNumber && b == kPunctuation; });
  apart =
      part_pairs(apart, false, [](CharClass a, CharClass b) { return a == kPunctuation && b != kNumber; });
  std::u32string result;
  for (const char32_t point : apart) {
    if (char_class(point) == kSymbol) {
      result += {U' ', point, U' '};
    } else {
      result += point;
    }
  }
  return result;
}

// Python's ' '.join(text.split()).
std::string single_blanks(std::string_view text) {
  std::string result;
  bool pending = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (is_python_space(point.value)) {
      pending = !result.empty();
    } else {
      if (pending) result += ' ';
      pending = false;
      result += text.substr(at, point.length);
    }
    at += point.length;
  }
  return result;
}

}  // namespace

std::string bleu_tokens(std::string_view text, const BleuOptions& options) {
  std::u32string points = code_points(text);
  if (options.lower_case) points = lower_case(points);
  while (!points.empty() && is_python_space(points.back())) points.pop_back();
  switch (options.tokens) {
    case BleuTokens::k13a:
      return single_blanks(tokens_13a(to_utf8(points)));
    case BleuTokens::kInternational:
      return single_blanks(to_utf8(tokens_international(points)));
    case BleuTokens::kNone:
      break;
  }
  return single_blanks(to_utf8(points));
}

}  // namespace edgewise::data
