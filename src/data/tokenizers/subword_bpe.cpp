#include <edgewise/data/subword_bpe.h>
#include <edgewise/io/atomic_file.h>

#include <algorithm>
#include <unordered_map>

#include "data/text/failure.h"
#include "data/text/utf8.h"
#include "data/tokenizers/bpe/learn_merges.h"
#include "data/tokenizers/bpe/word_cache.h"
#include "data/tokenizers/subword_words.h"
#include "data/tokenizers/tokenizer_files.h"

namespace edgewise::data {
namespace {

constexpr int32_t kSpecialPieces = 4;
constexpr const char* kSpecialSpelling[kSpecialPieces] = {"<s>", "<pad>", "</s>", "<unk>"};
constexpr std::string_view kGoesOn = "@@";

}  // namespace

struct SubwordBpe::State {
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<SubwordPiece> pieces;
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids;
  SymbolNames names;
  std::unordered_map<std::string, Symbol, StringHash, std::equal_to<>>
      known;  // symbols that take part in merges
  MergeTable table;
  mutable EncoderStates encoders;

  Symbol symbol(std::string_view text) const {
    const auto found = known.find(text);
    return found == known.end() ? kNoSymbol : found->second;
  }
  void merge_word(std::string_view word, WordMerger& merger) const;
  // Calls use(piece, is_last) for the pieces of a word.
  template <typename Use>
  void each_piece(std::string_view word, WordMerger& merger, const Use& use) const {
    merge_word(word, merger);
    const std::vector<WordSymbol>& symbols = merger.word();
    for (size_t i = 0; i < symbols.size(); ++i) {
      const bool last = i + 1 == symbols.size();
      const size_t end = last ? word.size() : symbols[i + 1].begin;
      use(word.substr(symbols[i].begin, end - symbols[i].begin), last);
    }
  }
};

SubwordBpe::~SubwordBpe() = default;
SubwordBpe::SubwordBpe(SubwordBpe&&) noexcept = default;
SubwordBpe& SubwordBpe::operator=(SubwordBpe&&) noexcept = default;

SubwordBpe::SubwordBpe(std::vector<std::pair<std::string, std::string>> merges,
                       std::vector<SubwordPiece> pieces)
    : state_(std::make_unique<State>()) {
  special_ = {.begin = 0, .pad = 1, .end = 2, .unknown = 3, .mask = std::nullopt};
  State& state = *state_;
  state.merges = std::move(merges);
  state.pieces = std::move(pieces);
  state.table = MergeTable(state.merges.size());
  const auto add = [&](const std::string& text) {
    const Symbol symbol = state.names.add(text);
    state.known.emplace(text, symbol);
    return symbol;
  };
  for (size_t rank = 0; rank < state.merges.size(); ++rank) {
    const auto& [left, right] = state.merges[rank];
    const Symbol first = add(left), second = add(right);
    if (!state.table.add(first, second, {static_cast<uint32_t>(rank), add(left + right)}))
      fail("subword BPE: expected each merge once; found ", in_quotes(left + " " + right), " twice");
  }
  for (int32_t id = 0; id < kSpecialPieces; ++id) state.ids.emplace(kSpecialSpelling[id], id);
  for (const SubwordPiece& piece : state.pieces) {
    const auto id = static_cast<int32_t>(state.ids.size());
    if (!state.ids.emplace(piece.text, id).second)
      fail("subword BPE: expected each piece once, and none of the special ones; found ",
           in_quotes(piece.text), " twice");
  }
}

int64_t SubwordBpe::size() const {
  return static_cast<int64_t>(state_->ids.size());
}
const std::vector<std::pair<std::string, std::string>>& SubwordBpe::merges() const {
  return state_->merges;
}
const std::vector<SubwordPiece>& SubwordBpe::pieces() const {
  return state_->pieces;
}

void SubwordBpe::State::merge_word(std::string_view word, WordMerger& merger) const {
  if (word.size() >= kNoSymbol)
    fail("subword BPE: expected words of less than 4 GiB; found ", word.size(), " bytes");
  std::vector<WordSymbol>& symbols = merger.word();
  symbols.clear();
  for (size_t at = 0; at < word.size();) {
    const size_t length = code_point_at(word, at).length;
    const std::string_view text = word.substr(at, length);
    const Symbol found =
        at + length < word.size() ? symbol(text) : symbol(std::string(text).append(kWordEnd));
    symbols.push_back({found, static_cast<uint32_t>(at)});
    at += length;
  }
  merger.merge(table, MergeOrder::kAllAtOnce);
}

void SubwordBpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  EncoderStates::Borrowed borrowed(state_->encoders);
  EncoderState& encoder = *borrowed;
  std::string spelling;
  each_word(text, [&](std::string_view word) {
    const uint64_t hash = WordCache::hash(word.substr(0, WordCache::kLongestWord));
    const bool keep = word.size() <= WordCache::kLongestWord;
    if (keep) {
      if (const auto known = encoder.cache.find(word, hash); !known.empty()) {
        ids.insert(ids.end(), known.begin(), known.end());
        return;
      }
    }
    const size_t before = ids.size();
    state_->each_piece(word, encoder.merger, [&](std::string_view piece, bool last) {
      spelling.assign(piece);
      if (!last) spelling += kGoesOn;
      const auto found = state_->ids.find(spelling);
      // A text that spells a special piece does not mean it.
      const bool is_piece = found != state_->ids.end() && found->second >= kSpecialPieces;
      ids.push_back(is_piece ? found->second : *special_.unknown);
    });
    if (keep) encoder.cache.keep(word, hash, std::span(ids).subspan(before));
  });
}

std::string SubwordBpe::segment(std::string_view line) const {
  EncoderStates::Borrowed borrowed(state_->encoders);
  std::string result;
  each_word(line, [&](std::string_view word) {
    state_->each_piece(word, (*borrowed).merger, [&](std::string_view piece, bool last) {
      if (!result.empty()) result += ' ';
      result += piece;
      if (!last) result += kGoesOn;
    });
  });
  return result;
}

std::string SubwordBpe::piece(int32_t id) const {
  check_id(id, "subword BPE");
  return id < kSpecialPieces ? kSpecialSpelling[id]
                             : state_->pieces[static_cast<size_t>(id - kSpecialPieces)].text;
}

std::string SubwordBpe::decode(std::span<const int32_t> ids, bool leave_out_special) const {
  std::string pieces;
  bool any = false;
  for (const int32_t id : ids) {
    const std::string text = piece(id);
    if (leave_out_special && id < kSpecialPieces && id != special_.unknown) continue;
    if (any) pieces += ' ';
    pieces += text;
    any = true;
  }
  return join_subwords(pieces);
}

void SubwordBpe::save_files(const std::filesystem::path& folder) const {
  std::string codes = "#version: 0.2\n", vocabulary;
  for (const auto& [left, right] : state_->merges) codes += left + " " + right + "\n";
  for (const SubwordPiece& each : state_->pieces)
    vocabulary += each.text + " " + std::to_string(each.count) + "\n";
  io::write_file_atomically(folder / "codes.txt", codes);
  io::write_file_atomically(folder / "vocabulary.txt", vocabulary);
}

std::string join_subwords(std::string_view pieces) {
  std::string text;
  for (size_t at = 0; at < pieces.size();) {
    const bool joint = pieces.substr(at).starts_with("@@ ") || pieces.substr(at) == kGoesOn;
    if (joint) {
      at += std::min<size_t>(3, pieces.size() - at);
    } else {
      text += pieces[at++];
    }
  }
  return text;
}

}  // namespace edgewise::data
