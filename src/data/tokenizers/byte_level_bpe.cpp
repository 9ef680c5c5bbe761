#include <edgewise/data/byte_level_bpe.h>
#include <edgewise/io/atomic_file.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "data/text/failure.h"
#include "data/text/unicode.h"
#include "data/text/utf8.h"
#include "data/tokenizers/bpe/word_cache.h"
#include "data/tokenizers/byte_symbols.h"
#include "data/tokenizers/gpt2_split.h"
#include "data/tokenizers/tokenizer_files.h"
#include "data/tokenizers/vocabulary_json.h"

namespace edgewise::data {

struct ByteLevelBpe::State {
  std::vector<std::string> pieces;  // by id, as spelt in the files
  std::vector<std::string> texts;   // by id, the bytes they stand for
  std::vector<ByteLevelMerge> merges;
  MergeTable table;
  std::array<Symbol, 256> bytes{};
  mutable EncoderStates encoders;

  void encode_word(std::string_view word, EncoderState& encoder, std::vector<int32_t>& ids) const;
  void encode(std::string_view text, std::vector<int32_t>& ids) const;
};

ByteLevelBpe::~ByteLevelBpe() = default;
ByteLevelBpe::ByteLevelBpe(ByteLevelBpe&&) noexcept = default;
ByteLevelBpe& ByteLevelBpe::operator=(ByteLevelBpe&&) noexcept = default;

ByteLevelBpe::ByteLevelBpe(std::vector<std::string> pieces, std::vector<ByteLevelMerge> merges,
                           const SpecialIds& special)
    : state_(std::make_unique<State>()) {
  special_ = special;
  State& state = *state_;
  state.pieces = std::move(pieces);
  state.merges = std::move(merges);
  state.bytes.fill(kNoSymbol);
  const auto size = static_cast<int32_t>(state.pieces.size());
  for (int32_t id = 0; id < size; ++id) {
    const std::string& piece = state.pieces[static_cast<size_t>(id)];
    if (special_.contains(id)) {
      state.texts.push_back(piece);
      continue;
    }
    const std::optional<std::string> bytes = bytes_of_spelling(piece);
    if (!bytes || bytes->empty())
      fail("byte-level BPE: expected pieces of the 256 characters that stand for bytes; found ",
           in_quotes(piece), ", id ", id, ". Name it in special_tokens_map.json if it is a special one.");
    state.texts.push_back(*bytes);
    if (bytes->size() == 1) state.bytes[static_cast<uint8_t>(bytes->front())] = static_cast<Symbol>(id);
  }
  for (size_t byte = 0; byte < state.bytes.size(); ++byte)
    if (state.bytes[byte] == kNoSymbol)
      fail("byte-level BPE: expected a piece for each of the 256 bytes; found none for byte ", byte, ", ",
           in_quotes(spell_bytes(std::string(1, static_cast<char>(byte)))), ". The vocabulary is not whole.");
  state.table = MergeTable(state.merges.size());
  for (size_t rank = 0; rank < state.merges.size(); ++rank) {
    const ByteLevelMerge& merge = state.merges[rank];
    state.table.add(static_cast<Symbol>(merge.left), static_cast<Symbol>(merge.right),
                    {static_cast<uint32_t>(rank), static_cast<Symbol>(merge.product)});
  }
}

int64_t ByteLevelBpe::size() const {
  return static_cast<int64_t>(state_->pieces.size());
}

void ByteLevelBpe::State::encode_word(std::string_view word, EncoderState& encoder,
                                      std::vector<int32_t>& ids) const {
  const bool keep = word.size() <= WordCache::kLongestWord;
  const uint64_t hash = keep ? WordCache::hash(word) : 0;
  if (keep) {
    if (const auto known = encoder.cache.find(word, hash); !known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return;
    }
  }
  if (word.size() >= kNoSymbol)
    fail("byte-level BPE: expected words of less than 4 GiB; found ", word.size(), " bytes");
  std::vector<WordSymbol>& symbols = encoder.merger.word();
  symbols.clear();
  for (size_t i = 0; i < word.size(); ++i)
    symbols.push_back({bytes[static_cast<uint8_t>(word[i])], static_cast<uint32_t>(i)});
  encoder.merger.merge(table, MergeOrder::kOneByOne);
  const size_t before = ids.size();
  for (const WordSymbol& each : symbols) ids.push_back(static_cast<int32_t>(each.symbol));
  if (keep) encoder.cache.keep(word, hash, std::span(ids).subspan(before));
}

void ByteLevelBpe::State::encode(std::string_view text, std::vector<int32_t>& ids) const {
  EncoderStates::Borrowed encoder(encoders);
  for (size_t at = 0; at < text.size();) {
    const size_t end = gpt2_word_end(text, at);
    encode_word(text.substr(at, end - at), *encoder, ids);
    at = end;
  }
}

void ByteLevelBpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  state_->encode(text, ids);
}

std::vector<int32_t> ByteLevelBpe::encode_marked(std::string_view text) const {
  std::vector<std::pair<std::string_view, int32_t>> marks;
  for (const auto& id : {special_.begin, special_.pad, special_.end, special_.unknown, special_.mask})
    if (id && !piece(*id).empty()) marks.emplace_back(state_->pieces[static_cast<size_t>(*id)], *id);
  std::sort(marks.begin(), marks.end(),
            [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  std::vector<int32_t> ids;
  size_t begin = 0;  // of the text since the last mark
  for (size_t at = 0; at < text.size(); ++at) {
    const auto mark = std::find_if(marks.begin(), marks.end(),
                                   [&](const auto& each) { return text.substr(at).starts_with(each.first); });
    if (mark == marks.end()) continue;
    std::string_view before = text.substr(begin, at - begin);
    if (mark->second == special_.mask) {
      size_t kept = 0;
      for (size_t i = 0; i < before.size();) {
        const CodePoint point = code_point_at(before, i);
        i += point.length;
        if (char_class(point.value) != CharClass::kSpace) kept = i;
      }
      before = before.substr(0, kept);
    }
    state_->encode(before, ids);
    ids.push_back(mark->second);
    begin = at + mark->first.size();
    at = begin - 1;
  }
  state_->encode(text.substr(begin), ids);
  return ids;
}

std::string ByteLevelBpe::decode(std::span<const int32_t> ids, bool leave_out_special) const {
  std::string text;
  for (const int32_t id : ids) {
    check_id(id, "byte-level BPE");
    if (!leave_out_special || !special_.contains(id) || id == special_.unknown)
      text += state_->texts[static_cast<size_t>(id)];
  }
  return text;
}

std::string ByteLevelBpe::piece(int32_t id) const {
  check_id(id, "byte-level BPE");
  return state_->pieces[static_cast<size_t>(id)];
}

void ByteLevelBpe::save_files(const std::filesystem::path& folder) const {
  std::string merges = "#version: 0.2\n";
  for (const ByteLevelMerge& merge : state_->merges)
    merges += piece(merge.left) + " " + piece(merge.right) + "\n";
  io::write_file_atomically(folder / "merges.txt", merges);
  io::write_file_atomically(folder / "vocab.json", vocabulary_json(state_->pieces));
}

}  // namespace edgewise::data
