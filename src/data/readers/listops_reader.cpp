// Reading ListOps files, one line at a time.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include <c10/util/Exception.h>

#include <edgewise/data/listops_file.h>

namespace edgewise::data {

namespace {

constexpr const char* kHeader = "Source\tTarget";

// A piece of the file for an error message: short and printable.
std::string shown(std::string_view text) {
  constexpr size_t kLimit = 24;
  std::string result = "'";
  for (const char c : text.substr(0, kLimit)) result += c >= ' ' && c <= '~' ? c : '?';
  return result + (text.size() > kLimit ? "...'" : "'");
}

std::optional<uint8_t> parse_token(std::string_view word) {
  if (word.size() == 1) {
    if (word[0] >= '0' && word[0] <= '9') return static_cast<uint8_t>(kListOpsDigit + (word[0] - '0'));
    if (word[0] == ']' || word[0] == 'X') return kListOpsEnd;
  }
  for (const uint8_t token : {kListOpsMin, kListOpsMax, kListOpsMed, kListOpsSm}) {
    if (word == listops_token_name(token)) return token;
  }
  return std::nullopt;
}

// Parses the lines of one file; knows where it is, so that an error can say so.
class LineParser {
 public:
  LineParser(const std::string& path, const ListOpsReadOptions& options) : path_(path), options_(options) {}

  void header(std::string_view line) const {
    if (line != kHeader) {
      fail(1, "expected the header 'Source<TAB>Target'; found ", shown(line), "; is this a ListOps file?");
    }
  }

  void example(std::string_view line, ListOpsExamples& examples) {
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos) {
      fail(line.size() + 1, "expected an expression, a tab and a target; found no tab in ", shown(line));
    }
    const std::string_view target = line.substr(tab + 1);
    if (target.size() != 1 || target[0] < '0' || target[0] > '9') {
      fail(tab + 2, "expected a target in 0..9; found ", shown(target));
    }
    tokenise(line.substr(0, tab));

    const ListOpsValue result = evaluate_listops(tokens_);
    if (!result.problem.empty()) {
      const auto position = static_cast<size_t>(result.position);
      fail(position < columns_.size() ? columns_[position] : tab + 1,
           "expected a balanced expression; found: ", result.problem);
    }
    const int64_t label = target[0] - '0';
    if (options_.verify && label != result.value) {
      fail(tab + 2, "expected the expression's value ", result.value, " as target; found ", label);
    }
    examples.add(tokens_, label);
  }

  void next_line() { ++line_; }

 private:
  // Fills tokens_ and columns_. Round parentheses repeat what the operators say; they are dropped, but must
  // balance.
  void tokenise(std::string_view source) {
    tokens_.clear();
    columns_.clear();
    int64_t depth = 0;
    for (size_t begin = 0; begin < source.size();) {
      if (source[begin] == ' ') {
        ++begin;
        continue;
      }
      size_t end = begin + 1;  // words are so short that a loop beats find()
      while (end < source.size() && source[end] != ' ') ++end;
      const std::string_view word = source.substr(begin, end - begin);
      if (word == "(") {
        ++depth;
      } else if (word == ")") {
        if (--depth < 0) fail(begin + 1, "expected balanced parentheses; found ')' without '('");
      } else {
        const std::optional<uint8_t> token = parse_token(word);
        if (!token) {
          fail(begin + 1, "expected [MIN, [MAX, [MED, [SM, ], a digit or a parenthesis; found ", shown(word));
        }
        tokens_.push_back(*token);
        columns_.push_back(begin + 1);
      }
      begin = end;
    }
    if (tokens_.empty()) fail(1, "expected an expression; found none before the tab");
    if (depth != 0) fail(source.size() + 1, "expected balanced parentheses; found ", depth, " never closed");
    if (static_cast<int64_t>(tokens_.size()) > options_.max_length) {
      fail(1, "expected at most ", options_.max_length, " tokens; found ", tokens_.size(),
           "; raise max_length to read it");
    }
  }

  template <typename... Parts>
  [[noreturn]] void fail(size_t column, const Parts&... parts) const {
    TORCH_CHECK_VALUE(false, "read_listops: ", path_, ":", line_, ":", column, ": ", parts...);
  }

  const std::string& path_;
  const ListOpsReadOptions& options_;
  int64_t line_ = 1;
  std::vector<uint8_t> tokens_;
  std::vector<size_t> columns_;  // where each token starts, from 1
};

bool read_line(std::ifstream& file, std::string& line) {
  if (!std::getline(file, line)) return false;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

}  // namespace

ListOpsExamples read_listops(const std::string& path, const ListOpsReadOptions& options) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file.is_open(), "read_listops: could not open '", path, "': ", std::strerror(errno),
              "; 'edgewise data listops --out FOLDER' makes the files");
  LineParser parser(path, options);
  std::string line;
  read_line(file, line);
  TORCH_CHECK(!file.bad(), "read_listops: could not read '", path, "': ", std::strerror(errno));
  parser.header(line);

  ListOpsExamples examples;
  while (parser.next_line(), read_line(file, line)) parser.example(line, examples);
  TORCH_CHECK(!file.bad(), "read_listops: could not read '", path, "': ", std::strerror(errno));
  return examples;
}

}  // namespace edgewise::data
