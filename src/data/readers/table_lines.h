// Lines and tab-separated fields of a text in memory, counted for error messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/Exception.h>

namespace edgewise::data {

// A piece of a file for an error message: short and printable.
inline std::string shown(std::string_view text) {
  constexpr size_t kLimit = 24;
  std::string result = "'";
  for (const char c : text.substr(0, kLimit)) result += c >= ' ' && c <= '~' ? c : '?';
  return result + (text.size() > kLimit ? "...'" : "'");
}

class TableLines {
 public:
  TableLines(std::string_view text, std::string name) : rest_(text), name_(std::move(name)) {}

  // The next line without its ending (LF or CR LF); false at the end.
  bool next(std::string_view& line) {
    if (rest_.empty()) return false;
    const size_t end = rest_.find('\n');
    line = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    ++number_;
    return true;
  }

  // The next line as exactly `columns` fields; `what` names them in errors.
  bool next_row(std::vector<std::string_view>& fields, size_t columns, char separator, const char* what) {
    std::string_view line;
    if (!next(line)) return false;
    fields.clear();
    for (size_t begin = 0;;) {
      const size_t end = line.find(separator, begin);
      fields.push_back(line.substr(begin, end == std::string_view::npos ? end : end - begin));
      if (end == std::string_view::npos) break;
      begin = end + 1;
    }
    if (fields.size() != columns) {
      fail("expected ", columns, " fields (", what, "); found ", fields.size(), " in ", shown(line));
    }
    return true;
  }

  // A whole number below `bound`.
  int64_t number(std::string_view field, int64_t bound, const char* what) const {
    int64_t value = 0;
    bool good = !field.empty() && field.size() <= 10;
    for (const char c : field) {
      good = good && c >= '0' && c <= '9';
      value = good ? value * 10 + (c - '0') : 0;
    }
    if (!good || value >= bound) {
      fail("expected ", what, ", a whole number below ", bound, "; found ", shown(field));
    }
    return value;
  }

  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    TORCH_CHECK_VALUE(false, name_, ":", number_, ": ", parts...);
  }

 private:
  std::string_view rest_;
  std::string name_;
  int64_t number_ = 0;
};

}  // namespace edgewise::data
