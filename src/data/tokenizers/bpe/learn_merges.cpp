#include "data/tokenizers/bpe/learn_merges.h"

#include <algorithm>
#include <queue>

#include "data/text/failure.h"

namespace edgewise::data {
namespace {

struct Candidate {
  int64_t count;
  Symbol left, right;
};

}  // namespace

Symbol SymbolNames::add(std::string_view text) {
  if (const auto found = symbols_.find(text); found != symbols_.end()) return found->second;
  const auto symbol = static_cast<Symbol>(texts_.size());
  texts_.push_back(&symbols_.emplace(text, symbol).first->first);
  return symbol;
}

void MergeLearner::add_word(const std::vector<Symbol>& symbols, int64_t count) {
  if (symbols_.size() + symbols.size() + 1 >= 0xFFFFFFF0u)
    fail("tokeniser: expected distinct words of less than 4 G characters together; the text has more");
  const auto word = static_cast<uint32_t>(counts_.size());
  counts_.push_back(count);
  for (size_t i = 0; i <= symbols.size(); ++i) {
    const auto at = static_cast<uint32_t>(symbols_.size());
    symbols_.push_back(i < symbols.size() ? symbols[i] : kNoSymbol);
    next_.push_back(at + 1);
    before_.push_back(i > 0 ? at - 1 : at);  // its own: nothing before it
    word_.push_back(word);
  }
}

// The pair that begins at `at`, if there is one, is counted once more or less for its word.
void MergeLearner::count_place(uint32_t at, int64_t sign, std::vector<uint64_t>* grown) {
  const Symbol left = symbols_[at], right = symbols_[next_[at]];
  if (left == kNoSymbol || right == kNoSymbol) return;
  Pair& found = pair(left, right);
  found.count += sign * counts_[word_[at]];
  if (sign < 0) return;
  found.places.push_back(at);
  if (grown != nullptr) grown->push_back(uint64_t{left} << 32 | right);
}

void MergeLearner::merge_at(uint32_t at, Symbol product, std::vector<uint64_t>& grown) {
  const uint32_t gone = next_[at], before = before_[at];
  if (before != at) count_place(before, -1, nullptr);
  count_place(at, -1, nullptr);
  count_place(gone, -1, nullptr);
  symbols_[at] = product;
  symbols_[gone] = kNoSymbol;
  next_[at] = next_[gone];
  before_[next_[gone]] = at;
  if (before != at) count_place(before, +1, &grown);
  count_place(at, +1, &grown);
}

std::vector<LearnedMerge> MergeLearner::learn(SymbolNames& names, const LearnOptions& options) {
  for (uint32_t at = 0; at + 1 < symbols_.size(); ++at) count_place(at, +1, nullptr);
  const auto worse = [&](const Candidate& a, const Candidate& b) {
    if (a.count != b.count) return a.count < b.count;
    if (!options.greatest_text_first) return a.left != b.left ? a.left > b.left : a.right > b.right;
    if (a.left != b.left) return names[a.left] < names[b.left];
    return names[a.right] < names[b.right];
  };
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(worse)> queue(worse);
  const auto offer = [&](uint64_t key, int64_t count) {
    if (count >= options.min_count && count > 0)
      queue.push({count, static_cast<Symbol>(key >> 32), static_cast<Symbol>(key)});
  };
  for (const auto& [key, pair] : pairs_) offer(key, pair.count);
  std::vector<LearnedMerge> learned;
  std::vector<uint64_t> grown;
  while (!queue.empty() && static_cast<int64_t>(learned.size()) < options.merges &&
         (options.symbols == 0 || static_cast<int64_t>(names.size()) < options.symbols)) {
    const Candidate best = queue.top();
    queue.pop();
    const uint64_t key = uint64_t{best.left} << 32 | best.right;
    const auto found = pairs_.find(key);
    if (found == pairs_.end()) continue;
    if (found->second.count != best.count) {  // it has become rarer since it was offered
      if (found->second.count < best.count) offer(key, found->second.count);
      continue;
    }
    std::vector<uint32_t> places = std::move(found->second.places);
    std::sort(places.begin(), places.end());  // within a word from left to right
    const Symbol product = names.add(names[best.left] + names[best.right]);
    grown.clear();
    for (const uint32_t at : places)
      if (symbols_[at] == best.left && symbols_[next_[at]] == best.right) merge_at(at, product, grown);
    pairs_.erase(key);
    std::sort(grown.begin(), grown.end());
    grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
    for (const uint64_t each : grown) {
      const auto pair = pairs_.find(each);
      if (pair != pairs_.end()) offer(each, pair->second.count);
    }
    learned.push_back({best.left, best.right, product});
    if (options.progress) options.progress(static_cast<int64_t>(learned.size()));
  }
  return learned;
}

}  // namespace edgewise::data
