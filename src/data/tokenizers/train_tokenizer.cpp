#include <edgewise/data/train_tokenizer.h>

#include <algorithm>
#include <map>

#include "data/text/failure.h"
#include "data/text/utf8.h"
#include "data/tokenizers/bpe/learn_merges.h"
#include "data/tokenizers/byte_symbols.h"
#include "data/tokenizers/gpt2_split.h"
#include "data/tokenizers/subword_words.h"

namespace edgewise::data {
namespace {

constexpr const char* kBytePieces[] = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
constexpr int32_t kSpecials = 5;

void check(const TrainTokenizerOptions& options, int64_t least, const char* what) {
  if (options.vocabulary < least || options.vocabulary > (int64_t{1} << 30))
    fail("train a tokeniser: expected ", what, ", from ", least, " to 2^30; got ", options.vocabulary);
  if (options.min_count < 1)
    fail("train a tokeniser: expected min_count of at least 1; got ", options.min_count);
}

}  // namespace

struct ByteLevelBpeTrainer::State {
  WordCounts words;
};
ByteLevelBpeTrainer::ByteLevelBpeTrainer() : state_(std::make_unique<State>()) {}
ByteLevelBpeTrainer::~ByteLevelBpeTrainer() = default;

void ByteLevelBpeTrainer::add(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = gpt2_word_end(text, at);
    count_word(state_->words, text.substr(at, end - at));
    at = end;
  }
}

int64_t ByteLevelBpeTrainer::distinct_words() const {
  return static_cast<int64_t>(state_->words.size());
}

ByteLevelBpe ByteLevelBpeTrainer::train(const TrainTokenizerOptions& options) const {
  check(options, kSpecials + 256, "a vocabulary with 5 special pieces and 256 bytes");
  // The first symbols have the numbers of their ids, so that ties are broken by ids: specials, then bytes by
  // character.
  SymbolNames names;
  for (const char* const special : kBytePieces) names.add(special);
  std::map<uint32_t, uint8_t> by_symbol;
  for (uint32_t byte = 0; byte < 256; ++byte)
    by_symbol[byte_symbol(static_cast<uint8_t>(byte))] = static_cast<uint8_t>(byte);
  std::vector<Symbol> byte_symbols(256);
  for (const auto& [point, byte] : by_symbol) {
    std::string spelling;
    append_utf8(spelling, point);
    byte_symbols[byte] = names.add(spelling);
  }
  MergeLearner learner;
  std::vector<Symbol> symbols;
  for (const auto& [word, count] : state_->words) {
    symbols.clear();
    for (const char c : word) symbols.push_back(byte_symbols[static_cast<uint8_t>(c)]);
    learner.add_word(symbols, count);
  }
  const std::vector<LearnedMerge> learned = learner.learn(names, {.merges = options.vocabulary,
                                                                  .symbols = options.vocabulary,
                                                                  .min_count = options.min_count,
                                                                  .greatest_text_first = false,
                                                                  .progress = options.progress});
  std::vector<ByteLevelMerge> merges;
  merges.reserve(learned.size());
  for (const LearnedMerge& each : learned)
    merges.push_back({static_cast<int32_t>(each.left), static_cast<int32_t>(each.right),
                      static_cast<int32_t>(each.product)});
  std::vector<std::string> pieces;
  for (Symbol symbol = 0; symbol < names.size(); ++symbol) pieces.push_back(names[symbol]);
  return {std::move(pieces), std::move(merges),
          SpecialIds{.begin = 0, .pad = 1, .end = 2, .unknown = 3, .mask = 4}};
}

struct SubwordBpeTrainer::State {
  WordCounts words;
};
SubwordBpeTrainer::SubwordBpeTrainer() : state_(std::make_unique<State>()) {}
SubwordBpeTrainer::~SubwordBpeTrainer() = default;

void SubwordBpeTrainer::add(std::string_view line) {
  while (!line.empty()) {  // more than one line is taken as what it is
    const size_t end = line.find_first_of("\r\n");
    each_word(line.substr(0, end), [&](std::string_view word) { count_word(state_->words, word); });
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  }
}

int64_t SubwordBpeTrainer::distinct_words() const {
  return static_cast<int64_t>(state_->words.size());
}

SubwordBpe SubwordBpeTrainer::train(const TrainTokenizerOptions& options) const {
  check(options, 1, "a number of merges");
  SymbolNames names;
  MergeLearner learner;
  std::vector<Symbol> symbols;
  for (const auto& [word, count] : state_->words) {
    symbols.clear();
    for (size_t at = 0; at < word.size();) {
      const size_t length = code_point_at(word, at).length;
      const std::string_view text = std::string_view(word).substr(at, length);
      at += length;
      symbols.push_back(at < word.size() ? names.add(text) : names.add(std::string(text).append(kWordEnd)));
    }
    learner.add_word(symbols, count);
  }
  std::vector<std::pair<std::string, std::string>> merges;
  for (const LearnedMerge& each : learner.learn(names, {.merges = options.vocabulary,
                                                       .symbols = 0,
                                                       .min_count = options.min_count,
                                                       .greatest_text_first = true,
                                                       .progress = options.progress}))
    merges.emplace_back(names[each.left], names[each.right]);
  // What the words of the text are made of, under these merges.
  const SubwordBpe segmenter(merges, {});
  std::map<std::string, int64_t> counts;
  for (const auto& [word, count] : state_->words) {
    const std::string segmented = segmenter.segment(word);
    each_word(segmented, [&, times = count](std::string_view piece) { counts[std::string(piece)] += times; });
  }
  std::vector<SubwordPiece> pieces;
  for (const auto& [text, count] : counts) {
    const bool special = text == "<s>" || text == "<pad>" || text == "</s>" || text == "<unk>";
    if (!special) pieces.push_back({text, count});
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const auto& a, const auto& b) { return a.count > b.count; });
  return {std::move(merges), std::move(pieces)};
}

}  // namespace edgewise::data
