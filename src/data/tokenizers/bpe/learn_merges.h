// Learning byte-pair encoding: from counted words, the pair that occurs most often becomes one symbol, again
// and again.
//
// Counts are exact after every merge, and only the places where a merged pair stands are visited. Memory
// grows with the distinct words, not with the text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/bpe/merge_table.h"

namespace edgewise::data {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using WordCounts = std::unordered_map<std::string, int64_t, StringHash, std::equal_to<>>;

inline void count_word(WordCounts& counts, std::string_view word) {
  const auto found = counts.find(word);
  if (found != counts.end()) {
    ++found->second;
  } else {
    counts.emplace(word, 1);
  }
}

// Symbols by their text: two ways to make one text make one symbol.
class SymbolNames {
 public:
  Symbol add(std::string_view text);  // the symbol of that text, a new one if need be
  const std::string& operator[](Symbol symbol) const { return *texts_[symbol]; }
  size_t size() const { return texts_.size(); }

 private:
  std::unordered_map<std::string, Symbol, StringHash, std::equal_to<>> symbols_;
  std::vector<const std::string*> texts_;
};

struct LearnedMerge {
  Symbol left, right, product;
};

struct LearnOptions {
  int64_t merges = 0;     // so many, or fewer when no pair is left
  int64_t symbols = 0;    // or, when not 0: until there are so many symbols
  int64_t min_count = 2;  // pairs that are rarer stay apart
  // Among pairs of the same count: the greatest by the texts of its symbols (subword-nmt), or the least by
  // their numbers (Hugging Face's tokenizers).
  bool greatest_text_first = false;
  std::function<void(int64_t merges)> progress = nullptr;
};

class MergeLearner {
 public:
  // The words are added first, as symbols of `names`.
  void add_word(const std::vector<Symbol>& symbols, int64_t count);
  std::vector<LearnedMerge> learn(SymbolNames& names, const LearnOptions& options);

 private:
  struct Pair {
    int64_t count = 0;
    std::vector<uint32_t> places;  // of the left symbol; some no longer hold the pair
  };

  Pair& pair(Symbol left, Symbol right) { return pairs_[uint64_t{left} << 32 | right]; }
  void count_place(uint32_t at, int64_t sign, std::vector<uint64_t>* grown);
  void merge_at(uint32_t at, Symbol product, std::vector<uint64_t>& grown);

  // All words one after another, kNoSymbol after each. next_ and before_ link what is left of a word.
  std::vector<Symbol> symbols_;
  std::vector<uint32_t> next_, before_, word_;
  std::vector<int64_t> counts_;  // of words
  std::unordered_map<uint64_t, Pair> pairs_;
};

}  // namespace edgewise::data
