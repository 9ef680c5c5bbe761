// Tokenizer: text to token ids and back, and the folder a tokeniser lives in.
//
// A folder holds edgewise_tokenizer.json and the files of its kind:
//   kind            files                             ids
//   bytes           -                                 1 + the byte; 0 is padding
//   characters      -                                 the bytes of a vocabulary, in its order
//   byte-bpe        vocab.json, merges.txt            as in vocab.json (GPT-2, RoBERTa)
//   subword-bpe     codes.txt, vocabulary.txt         special pieces, then the lines of vocabulary.txt
//   sentencepiece   sentencepiece.model               as in the model
// edgewise_tokenizer.json is an object with "format": 1, "kind", "size" (ids are below it), "special" (names
// of the list below to ids) and, for characters, "bytes". Folders without it are read when their files say
// what they are: RoBERTa's as it is distributed, a codes.txt with its vocabulary.txt, a *.model. Files may be
// xz-compressed (vocab.json.xz).
//
// No torch is needed here. What is wrong with a text or a file is a std::invalid_argument of one line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace edgewise::data {

// Ids that stand for no text.
struct SpecialIds {
  std::optional<int32_t> begin, pad, end, unknown, mask;

  bool contains(int32_t id) const {
    return begin == id || pad == id || end == id || unknown == id || mask == id;
  }
  bool operator==(const SpecialIds&) const = default;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view kind() const = 0;
  virtual int64_t size() const = 0;  // ids are below this
  const SpecialIds& special() const { return special_; }

  // Appends the ids of a text, without special ones except for what is unknown. Any bytes are a text.
  // Thread-safe.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  std::vector<int32_t> encode(std::string_view text) const;

  // The text of ids. Special pieces are spelt out, as in "<mask>", or left out; what is unknown is always
  // spelt out.
  virtual std::string decode(std::span<const int32_t> ids, bool leave_out_special = false) const = 0;

  // The spelling of an id in the tokeniser's files, for people.
  virtual std::string piece(int32_t id) const = 0;

  // Writes the folder, which is made when missing. Files appear only when complete, edgewise_tokenizer.json
  // last.
  void save(const std::filesystem::path& folder) const;

 protected:
  virtual void save_files(const std::filesystem::path& folder) const = 0;
  void check_id(int32_t id, const char* caller) const;

  SpecialIds special_;
};

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder);

// <s> text </s>, and for a pair <s> first </s></s> second </s>, as RoBERTa reads them. Special ids that the
// tokeniser lacks are left out.
std::vector<int32_t> framed(const Tokenizer& tokenizer, std::string_view text);
std::vector<int32_t> framed_pair(const Tokenizer& tokenizer, std::string_view first, std::string_view second);

}  // namespace edgewise::data
