#include "data/tokenizers/bpe/merges_file.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "data/text/failure.h"

namespace edgewise::data {

bool TextLines::next(std::string_view& line) {
  if (rest_.empty()) return false;
  const size_t end = rest_.find('\n');
  line = rest_.substr(0, end);
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  ++number_;
  return true;
}

MergesFile parse_merges(std::string_view text, const std::string& file,
                        const std::function<bool(std::string_view)>& is_first_symbol) {
  MergesFile result;
  std::unordered_map<std::string, int64_t> seen;
  std::unordered_set<std::string> made;
  TextLines lines(text, file);
  std::string_view line;
  while (lines.next(line)) {
    constexpr std::string_view kVersion = "#version:";
    if (lines.number() == 1 && line.starts_with(kVersion)) {
      line.remove_prefix(kVersion.size());
      line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
      result.version = line.substr(0, line.find(' '));
      continue;
    }
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos || blank == 0 || blank + 1 == line.size() ||
        line.find(' ', blank + 1) != std::string_view::npos)
      fail(lines.place(), "expected two symbols with a blank between them; found ", in_quotes(line));
    MergeLine merge{std::string(line.substr(0, blank)), std::string(line.substr(blank + 1)), lines.number()};
    const auto [first, is_new] = seen.emplace(std::string(line), lines.number());
    if (!is_new)
      fail(lines.place(), "expected a new pair; found ", in_quotes(line), ", which line ", first->second,
           " has");
    for (const std::string& part : {merge.left, merge.right})
      if (!is_first_symbol(part) && !made.contains(part))
        fail(lines.place(), "expected parts that are single characters or made by a line above; found ",
             in_quotes(part), ". Lines are missing or in another order.");
    made.insert(merge.left + merge.right);
    result.merges.push_back(std::move(merge));
  }
  return result;
}

}  // namespace edgewise::data
