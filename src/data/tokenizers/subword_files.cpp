// Reading subword-nmt's codes and the vocabulary beside them.
#include <charconv>
#include <unordered_map>

#include "data/text/failure.h"
#include "data/text/utf8.h"
#include "data/tokenizers/bpe/merges_file.h"
#include "data/tokenizers/subword_words.h"
#include "data/tokenizers/tokenizer_files.h"

namespace edgewise::data {
namespace {

// A character, or a character that ends a word.
bool is_character(std::string_view symbol) {
  if (symbol.empty()) return false;
  const size_t length = code_point_at(symbol, 0).length;
  return symbol.size() == length || symbol.substr(length) == kWordEnd;
}

std::vector<SubwordPiece> parse_vocabulary(const TextFile& file) {
  std::vector<SubwordPiece> pieces;
  std::unordered_map<std::string, int64_t> seen;
  TextLines lines(file.text, file.name);
  std::string_view line;
  while (lines.next(line)) {
    const size_t blank = line.rfind(' ');
    int64_t count = 0;
    const char *const end = line.data() + line.size(), *const digits = blank == std::string_view::npos
                                                                           ? end
                                                                           : line.data() + blank + 1;
    const auto [stopped, failure] = std::from_chars(digits, end, count);
    if (blank == std::string_view::npos || blank == 0 || failure != std::errc() || stopped != end ||
        count < 0)
      fail(lines.place(), "expected a piece, a blank and its count; found ", in_quotes(line));
    SubwordPiece piece{std::string(line.substr(0, blank)), count};
    if (piece.text.find(' ') != std::string::npos)
      fail(lines.place(), "expected a piece without blanks; found ", in_quotes(piece.text));
    if (const auto [first, is_new] = seen.emplace(piece.text, lines.number()); !is_new)
      fail(lines.place(), "expected a new piece; found ", in_quotes(piece.text), ", which line ",
           first->second, " has");
    for (const std::string_view special : {"<s>", "<pad>", "</s>", "<unk>"})
      if (piece.text == special)
        fail(lines.place(), "expected no special piece, which have the first ids anyway; found ",
             in_quotes(special));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace

SubwordBpe read_subword_bpe(const SubwordBpeFiles& files) {
  const TextFile codes = read_text_file(files.codes, "codes of subword-nmt");
  const MergesFile read = parse_merges(codes.text, codes.name, is_character);
  if (read.version != "0.2")
    fail(codes.name, ":1: expected '#version: 0.2'; found ",
         read.version.empty() ? "none" : in_quotes(read.version),
         ". Codes of subword-nmt before 0.2 mark the ends of words otherwise: learn them again.");
  std::vector<std::pair<std::string, std::string>> merges;
  for (const MergeLine& line : read.merges) merges.emplace_back(line.left, line.right);
  return {std::move(merges), parse_vocabulary(read_text_file(files.vocabulary, "a vocabulary"))};
}

SubwordBpe::SubwordBpe(const SubwordBpeFiles& files) : SubwordBpe(read_subword_bpe(files)) {}

}  // namespace edgewise::data
