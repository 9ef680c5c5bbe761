#include "data/tokenizers/vocabulary_json.h"

#include <cstdint>
#include <unordered_map>

#include "data/text/failure.h"
#include "data/text/utf8.h"

namespace edgewise::data {
namespace {

constexpr int64_t kMostIds = int64_t{1} << 30;

class Parser {
 public:
  Parser(std::string_view json, const std::string& file) : text_(json), file_(file) {}

  std::vector<std::string> parse() {
    expect('{', "an object of pieces and ids");
    std::unordered_map<int64_t, std::string> pieces;
    std::unordered_map<std::string, int64_t> seen;
    if (!follows('}')) {
      do {
        skip_space();
        const size_t begin = at_;
        std::string piece = string();
        expect(':', "':' after a piece");
        skip_space();
        const size_t number_at = at_;
        const int64_t id = number();
        if (const auto [first, is_new] = seen.emplace(piece, id); !is_new)
          error(begin, "a new piece",
                in_quotes(piece) + " again, which has the id " + std::to_string(first->second));
        if (const auto [first, is_new] = pieces.emplace(id, piece); !is_new)
          error(number_at, "a new id", std::to_string(id) + " again, which is " + in_quotes(first->second));
      } while (follows(','));
      expect('}', "',' or '}' after an id");
    } else {
      ++at_;
    }
    skip_space();
    if (at_ < text_.size()) error(at_, "nothing after the object", in_quotes(text_.substr(at_, 12)));
    std::vector<std::string> by_id(pieces.size());
    for (auto& [id, piece] : pieces) {
      if (id >= static_cast<int64_t>(by_id.size()))
        fail(file_, ": expected ", by_id.size(), " pieces to have the ids 0 to ", by_id.size() - 1,
             "; found the id ", id, " for ", in_quotes(piece), ". The vocabulary is not whole.");
      by_id[static_cast<size_t>(id)] = std::move(piece);
    }
    return by_id;
  }

 private:
  [[noreturn]] void error(size_t at, std::string_view expected, const std::string& found) const {
    const std::string_view before = text_.substr(0, at);
    size_t line = 1;
    for (const char c : before) line += c == '\n';
    const size_t last = before.rfind('\n');
    fail(file_, ":", line, ":", at - (last == std::string_view::npos ? 0 : last + 1) + 1, ": expected ",
         expected, "; found ", found);
  }
  std::string here() const {
    return at_ < text_.size() ? in_quotes(text_.substr(at_, 1)) : "the end of the file";
  }
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }
  // Takes a comma; leaves a brace where it is.
  bool follows(char wanted) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    if (wanted == ',') ++at_;
    return true;
  }
  void expect(char wanted, std::string_view what) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != wanted) error(at_, what, here());
    ++at_;
  }
  int64_t number() {
    const size_t begin = at_;
    int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && value < kMostIds)
      value = value * 10 + (text_[at_++] - '0');
    if (at_ == begin || value >= kMostIds)
      error(begin, "an id, a whole number below 2^30",
            at_ == begin ? here() : in_quotes(text_.substr(begin, 12)));
    return value;
  }
  uint32_t hexadecimal() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) error(at_, "four hexadecimal digits after \\u", here());
      value = value << 4 | static_cast<uint32_t>(digit);
    }
    return value;
  }
  void escaped(std::string& result) {
    const char c = at_ < text_.size() ? text_[at_++] : '\0';
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (const size_t which = kNames.find(c); which != std::string_view::npos) {
      result += kMeanings[which];
    } else if (c == 'u') {
      uint32_t value = hexadecimal();
      if (value >= 0xD800 && value < 0xDC00 && text_.substr(at_, 2) == "\\u") {
        at_ += 2;
        const uint32_t low = hexadecimal();
        if (low < 0xDC00 || low >= 0xE000)
          error(at_ - 6, "the second half of a pair, \\uDC00 to \\uDFFF", "another");
        value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
      }
      if (value >= 0xD800 && value < 0xE000) error(at_ - 6, "a whole character", "half of a pair");
      append_utf8(result, value);
    } else {
      error(at_ - 1, "an escape that JSON has", in_quotes(std::string_view(&c, 1)));
    }
  }
  std::string string() {
    const size_t begin = at_;
    expect('"', "a piece in double quotes");
    std::string result;
    for (;;) {
      if (at_ >= text_.size()) error(begin, "a piece that ends", "the end of the file; the file is cut");
      const char c = text_[at_++];
      if (c == '"') return result;
      if (c == '\\') {
        escaped(result);
      } else {
        result += c;
      }
    }
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
};

}  // namespace

std::vector<std::string> parse_vocabulary_json(std::string_view json, const std::string& file) {
  return Parser(json, file).parse();
}

std::string vocabulary_json(const std::vector<std::string>& pieces) {
  std::string json = "{";
  for (size_t id = 0; id < pieces.size(); ++id) {
    json += id == 0 ? "\"" : ",\"";
    for (const char c : pieces[id]) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const auto byte = static_cast<uint8_t>(c);
      if (c == '"' || c == '\\') {
        json += '\\';
        json += c;
      } else if (byte < 0x20) {
        json += "\\u00";
        json += kDigits[byte >> 4];
        json += kDigits[byte & 15];
      } else {
        json += c;
      }
    }
    json += "\":" + std::to_string(id);
  }
  return json + "}\n";
}

}  // namespace edgewise::data
