// Merging the symbols of a word, and learning merges, against what their definitions say word for word.
#include <algorithm>
#include <map>
#include <optional>

#include "data/text/text_kit.h"
#include "data/tokenizers/bpe/learn_merges.h"
#include "data/tokenizers/bpe/merge_word.h"
#include "data/tokenizers/bpe/word_cache.h"

namespace edgewise::data {
namespace {

using Symbols = std::vector<Symbol>;

// As tokenizers: the first of the best pairs; as subword-nmt: one pass over all of them.
Symbols merged_by_definition(Symbols word, const MergeTable& table, MergeOrder order) {
  for (;;) {
    Merge best;
    for (size_t i = 0; i + 1 < word.size(); ++i)
      if (const Merge merge = table.find(word[i], word[i + 1]); merge.rank < best.rank) best = merge;
    if (!best) return word;
    Symbols next;
    bool done = false;
    for (size_t i = 0; i < word.size(); ++i) {
      if (!done && i + 1 < word.size() && table.find(word[i], word[i + 1]).rank == best.rank) {
        next.push_back(best.product);
        ++i;
        done = order == MergeOrder::kOneByOne;
      } else {
        next.push_back(word[i]);
      }
    }
    word = std::move(next);
  }
}

Symbols merged(const Symbols& word, const MergeTable& table, MergeOrder order, bool by_heap) {
  WordMerger merger;
  for (const Symbol symbol : word)
    merger.word().push_back({symbol, static_cast<uint32_t>(merger.word().size())});
  by_heap ? merger.merge_long(table, order) : merger.merge(table, order);
  Symbols result;
  for (const WordSymbol& each : merger.word()) result.push_back(each.symbol);
  return result;
}

// Merges of few symbols, whose products take part in later ones: ranks in any order, as files may have them.
MergeTable random_merges(std::mt19937_64& random, size_t merges) {
  MergeTable table(merges);
  std::vector<uint32_t> ranks(merges);
  for (uint32_t i = 0; i < merges; ++i) ranks[i] = i;
  std::shuffle(ranks.begin(), ranks.end(), random);
  Symbol next = 4;
  for (const uint32_t rank : ranks)
    if (table.add(static_cast<Symbol>(random() % next), static_cast<Symbol>(random() % next), {rank, next}))
      ++next;
  return table;
}

TEST(MergeWord, BothWaysFollowTheDefinitionOfBothOrders) {
  std::mt19937_64 random(3);
  bool orders_differ = false;
  for (int i = 0; i < 3000; ++i) {
    const MergeTable table = random_merges(random, 1 + random() % 20);
    Symbols word(random() % 40);
    for (Symbol& symbol : word) symbol = random() % 20 == 0 ? kNoSymbol : static_cast<Symbol>(random() % 4);
    std::vector<Symbols> wanted;
    for (const MergeOrder order : {MergeOrder::kOneByOne, MergeOrder::kAllAtOnce}) {
      wanted.push_back(merged_by_definition(word, table, order));
      ASSERT_EQ(merged(word, table, order, false), wanted.back());
      ASSERT_EQ(merged(word, table, order, true), wanted.back());
    }
    orders_differ |= wanted[0] != wanted[1];
  }
  EXPECT_TRUE(orders_differ);  // or the orders are not tested
}

TEST(MergeWord, BeginningsOfPiecesStay) {
  MergeTable table(1);
  table.add(0, 1, {0, 2});
  WordMerger merger;
  for (const Symbol symbol : {0u, 1u, 1u, 0u, 1u})
    merger.word().push_back({symbol, static_cast<uint32_t>(merger.word().size())});
  merger.merge(table, MergeOrder::kAllAtOnce);
  ASSERT_EQ(merger.word().size(), 3u);
  EXPECT_EQ(merger.word()[1].begin, 2u);
  EXPECT_EQ(merger.word()[2].begin, 3u);
}

TEST(WordCache, GivesWhatWasKeptLastAndNothingElse) {
  WordCache cache;
  std::map<std::string, std::vector<int32_t>> kept;
  std::mt19937_64 random(4);
  int found = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string word;
    for (size_t n = 1 + random() % 3; n > 0; --n) word += static_cast<char>(random() % 60);
    const auto known = cache.find(word, WordCache::hash(word));
    if (!known.empty()) {
      ASSERT_TRUE(kept.contains(word));
      ASSERT_EQ(std::vector<int32_t>(known.begin(), known.end()), kept[word]);
      ++found;
    }
    kept[word] = std::vector<int32_t>(1 + random() % WordCache::kMostIds, i);
    cache.keep(word, WordCache::hash(word), kept[word]);
  }
  EXPECT_GT(found, 1000);
  const std::string longest(WordCache::kLongestWord + 1, 'x');
  cache.keep(longest, WordCache::hash(longest), std::vector<int32_t>{1});
  EXPECT_TRUE(cache.find(longest, WordCache::hash(longest)).empty());
}

// Counts everything anew for every merge.
std::vector<std::pair<std::string, std::string>> learned_by_definition(
    std::vector<std::pair<std::vector<std::string>, int64_t>> words, int64_t merges, int64_t min_count) {
  std::vector<std::pair<std::string, std::string>> result;
  while (static_cast<int64_t>(result.size()) < merges) {
    std::map<std::pair<std::string, std::string>, int64_t> counts;
    for (const auto& [word, count] : words)
      for (size_t i = 0; i + 1 < word.size(); ++i) counts[{word[i], word[i + 1]}] += count;
    const auto best = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second, a.first) < std::pair(b.second, b.first);
    });
    if (best == counts.end() || best->second < min_count) break;
    result.push_back(best->first);
    for (auto& [word, count] : words)
      for (size_t i = 0; i + 1 < word.size(); ++i)
        if (word[i] == best->first.first && word[i + 1] == best->first.second) {
          word[i] += word[i + 1];
          word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return result;
}

TEST(LearnMerges, EqualsCountingAnewForEveryMerge) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::pair<std::vector<std::string>, int64_t>> words;
    for (int w = 0; w < 12; ++w) {
      std::vector<std::string> word(1 + random() % 9);
      for (std::string& symbol : word)
        symbol = std::string(1, static_cast<char>('a' + random() % (2 + round % 3)));
      words.emplace_back(word, 1 + random() % 4);
    }
    SymbolNames names;
    MergeLearner learner;
    for (const auto& [word, count] : words) {
      Symbols symbols;
      for (const std::string& symbol : word) symbols.push_back(names.add(symbol));
      learner.add_word(symbols, count);
    }
    const auto learned =
        learner.learn(names, {.merges = 40, .symbols = 0, .min_count = 2, .greatest_text_first = true});
    std::vector<std::pair<std::string, std::string>> got;
    got.reserve(learned.size());
    for (const LearnedMerge& each : learned) got.emplace_back(names[each.left], names[each.right]);
    EXPECT_EQ(got, learned_by_definition(words, 40, 2)) << "round " << round;
  }
}

}  // namespace
}  // namespace edgewise::data
