#include "data/tokenizers/gpt2_split.h"

#include "data/text/unicode.h"
#include "data/text/utf8.h"

namespace edgewise::data {
namespace {

enum class Kind { kLetter, kNumber, kSpace, kOther };

struct Char {
  Kind kind;
  size_t end;
};

Char char_at(std::string_view text, size_t at) {
  const CodePoint point = code_point_at(text, at);
  const size_t end = at + point.length;
  switch (char_class(point.value)) {
    case CharClass::kLetter:
      return {Kind::kLetter, end};
    case CharClass::kNumber:
      return {Kind::kNumber, end};
    case CharClass::kSpace:
      return {Kind::kSpace, end};
    default:
      return {Kind::kOther, end};
  }
}

// The length of a contraction at text[at], an apostrophe; 0 when there is none.
size_t contraction(std::string_view text, size_t at) {
  if (at + 1 >= text.size()) return 0;
  const char first = text[at + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (at + 2 >= text.size()) return 0;
  const char second = text[at + 2];
  return ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l') ? 3 : 0;
}

// The end of the run of one kind that begins at text[at].
size_t run_end(std::string_view text, size_t at, Kind kind) {
  while (at < text.size()) {
    const Char next = char_at(text, at);
    if (next.kind != kind) break;
    at = next.end;
  }
  return at;
}

}  // namespace

size_t gpt2_word_end(std::string_view text, size_t at) {
  if (text[at] == '\'') {
    if (const size_t length = contraction(text, at); length > 0) return at + length;
  }
  const Char first = char_at(text, at);
  if (first.kind != Kind::kSpace) return run_end(text, first.end, first.kind);
  if (text[at] == ' ' && first.end < text.size()) {  // one blank goes with the word after it
    const Char next = char_at(text, first.end);
    if (next.kind != Kind::kSpace) return run_end(text, next.end, next.kind);
  }
  // White space: all of it, but the last one is left to the word that follows, if any is left then.
  size_t last = at, end = first.end;
  while (end < text.size()) {
    const Char next = char_at(text, end);
    if (next.kind != Kind::kSpace) return last > at ? last : end;
    last = end;
    end = next.end;
  }
  return end;
}

}  // namespace edgewise::data
