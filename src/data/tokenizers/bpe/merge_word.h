// Byte-pair encoding of one word: merges the pair of lowest rank until no pair merges.
//
// Short words are scanned, long ones go through a heap, so a word of n symbols costs O(n log n).
#pragma once

#include <vector>

#include "data/tokenizers/bpe/merge_table.h"

namespace edgewise::data {

enum class MergeOrder {
  kOneByOne,   // the first of the best pairs, then the best pair anew: Hugging Face's tokenizers
  kAllAtOnce,  // all occurrences of the best pair from left to right, then the best pair anew: subword-nmt
};

struct WordSymbol {
  Symbol symbol;
  uint32_t begin;  // where its text begins in the word; ends are the beginnings of the next ones
};

// The words of one thread, worked on in place; its memory is kept for the next word.
class WordMerger {
 public:
  std::vector<WordSymbol>& word() { return word_; }
  void merge(const MergeTable& table, MergeOrder order);
  // The same by the heap, whatever the length.
  void merge_long(const MergeTable& table, MergeOrder order);

 private:
  struct Entry {
    uint32_t rank, at;
    Symbol left, right;  // who stood there when the entry was made
  };

  void merge_short(const MergeTable& table, MergeOrder order);
  void push(const MergeTable& table, uint32_t at);
  bool stands(const Entry& entry) const;

  std::vector<WordSymbol> word_;
  std::vector<Merge> merges_;            // of word_[i] and word_[i + 1]
  std::vector<uint32_t> next_, before_;  // links over word_, for long words
  std::vector<Entry> heap_, batch_;
};

}  // namespace edgewise::data
