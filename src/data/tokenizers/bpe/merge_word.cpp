#include "data/tokenizers/bpe/merge_word.h"

#include <algorithm>
#include <cstddef>

namespace edgewise::data {
namespace {

constexpr size_t kShort = 48;  // symbols; above, the heap is faster
constexpr uint32_t kEnd = 0xFFFFFFFF;

}  // namespace

void WordMerger::merge(const MergeTable& table, MergeOrder order) {
  if (word_.size() <= kShort) {
    merge_short(table, order);
  } else {
    merge_long(table, order);
  }
}

void WordMerger::merge_short(const MergeTable& table, MergeOrder order) {
  size_t size = word_.size();
  if (size < 2) return;
  merges_.resize(size);
  for (size_t i = 0; i + 1 < size; ++i) merges_[i] = table.find(word_[i].symbol, word_[i + 1].symbol);
  const auto pair = [&](size_t i) {
    merges_[i] = i + 1 < size ? table.find(word_[i].symbol, word_[i + 1].symbol) : Merge{};
  };
  while (size > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i)
      if (merges_[i].rank < merges_[best].rank) best = i;
    const Merge merge = merges_[best];
    if (!merge) break;
    if (order == MergeOrder::kOneByOne) {
      word_[best].symbol = merge.product;
      std::copy(word_.begin() + static_cast<std::ptrdiff_t>(best) + 2,
                word_.begin() + static_cast<std::ptrdiff_t>(size),
                word_.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      if (best + 2 < size)
        std::copy(merges_.begin() + static_cast<std::ptrdiff_t>(best) + 2,
                  merges_.begin() + static_cast<std::ptrdiff_t>(size) - 1,
                  merges_.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      --size;
      pair(best);
      if (best > 0) pair(best - 1);
    } else {
      size_t kept = best;
      for (size_t i = best; i < size; ++kept) {
        const bool merges = i + 1 < size && merges_[i].rank == merge.rank;
        word_[kept] = word_[i];
        if (merges) word_[kept].symbol = merge.product;
        i += merges ? 2 : 1;
      }
      size = kept;
      for (size_t i = best > 0 ? best - 1 : 0; i < size; ++i) pair(i);
    }
  }
  word_.resize(size);
}

void WordMerger::push(const MergeTable& table, uint32_t at) {
  if (at == kEnd || next_[at] == kEnd) return;
  const Symbol left = word_[at].symbol, right = word_[next_[at]].symbol;
  const Merge merge = table.find(left, right);
  if (!merge) return;
  heap_.push_back({merge.rank, at, left, right});
  std::push_heap(heap_.begin(), heap_.end(), [](const Entry& a, const Entry& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  });
}

bool WordMerger::stands(const Entry& entry) const {
  return before_[entry.at] != entry.at && word_[entry.at].symbol == entry.left && next_[entry.at] != kEnd &&
         word_[next_[entry.at]].symbol == entry.right;
}

void WordMerger::merge_long(const MergeTable& table, MergeOrder order) {
  const auto size = static_cast<uint32_t>(word_.size());
  if (size < 2) return;
  const auto later = [](const Entry& a, const Entry& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  heap_.clear();
  next_.resize(size);
  before_.resize(size);
  for (uint32_t i = 0; i < size; ++i) {
    next_[i] = i + 1 < size ? i + 1 : kEnd;
    before_[i] = i > 0 ? i - 1 : kEnd;
  }
  for (uint32_t i = 0; i + 1 < size; ++i) {
    const Symbol left = word_[i].symbol, right = word_[i + 1].symbol;
    if (const Merge merge = table.find(left, right)) heap_.push_back({merge.rank, i, left, right});
  }
  std::make_heap(heap_.begin(), heap_.end(), later);
  while (!heap_.empty()) {
    // What is merged before new pairs are looked at; in the order of their places.
    const uint32_t rank = heap_.front().rank;
    batch_.clear();
    do {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      batch_.push_back(heap_.back());
      heap_.pop_back();
    } while (order == MergeOrder::kAllAtOnce && !heap_.empty() && heap_.front().rank == rank);
    size_t merged = 0;
    for (const Entry& entry : batch_) {
      if (!stands(entry)) continue;
      const uint32_t gone = next_[entry.at];
      word_[entry.at].symbol = table.find(entry.left, entry.right).product;
      next_[entry.at] = next_[gone];
      if (next_[gone] != kEnd) before_[next_[gone]] = entry.at;
      before_[gone] = gone;  // no longer part of the word
      batch_[merged++] = entry;
    }
    for (size_t i = 0; i < merged; ++i) {
      push(table, before_[batch_[i].at]);
      push(table, batch_[i].at);
    }
  }
  uint32_t kept = 0;
  for (uint32_t at = 0; at != kEnd; at = next_[at]) word_[kept++] = word_[at];
  word_.resize(kept);
}

}  // namespace edgewise::data
