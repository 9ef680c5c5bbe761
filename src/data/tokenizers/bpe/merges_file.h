// Files of merges: merges.txt of byte-level BPE and the codes of subword-nmt. A pair a line, parted by a
// blank.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::data {

struct MergeLine {
  std::string left, right;
  int64_t line;  // of the file, from 1
};

struct MergesFile {
  std::string version;  // "0.2" of a first line "#version: 0.2", or empty
  std::vector<MergeLine> merges;
};

// Every part must be a symbol to begin with or made by a line above: a file where merges wait for one
// another, or that lacks lines, is an error with file and line; so are pairs that stand there twice.
MergesFile parse_merges(std::string_view text, const std::string& file,
                        const std::function<bool(std::string_view)>& is_first_symbol);

// For lines of two columns; without the line's end.
class TextLines {
 public:
  TextLines(std::string_view text, const std::string& file) : rest_(text), file_(file) {}
  bool next(std::string_view& line);
  int64_t number() const { return number_; }
  std::string place() const { return file_ + ":" + std::to_string(number_) + ": "; }

 private:
  std::string_view rest_;
  const std::string& file_;
  int64_t number_ = 0;
};

}  // namespace edgewise::data
