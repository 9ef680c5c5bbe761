// Byte-level byte-pair encoding, as GPT-2's and RoBERTa's: words with their leading blank, bytes as the first
// symbols, so that every text has ids and comes back byte for byte.
//
// Files write a byte as a printable character: 33..126, 161..172 and 174..255 as themselves, the other 68 as
// 256, 257 ... in their order; a leading blank is thus U+0120. Ids equal those of Hugging Face's tokenizers.
#pragma once

#include <edgewise/data/tokenizer.h>

namespace edgewise::data {

struct ByteLevelBpeFiles {
  std::filesystem::path vocabulary;  // vocab.json: {"piece": id, ...}, or .xz
  std::filesystem::path merges;      // merges.txt: a pair a line, the first merges first, or .xz
  // special_tokens_map.json, which names the special pieces. Without it they are <s>, <pad>, </s>, <unk>,
  // <mask> and
  // <|endoftext|>, as far as the vocabulary has them.
  std::filesystem::path special;
};

// A merge of the file: ranks are their order.
struct ByteLevelMerge {
  int32_t left, right, product;
};

class ByteLevelBpe : public Tokenizer {
 public:
  explicit ByteLevelBpe(const ByteLevelBpeFiles& files);
  // From memory, as training makes it: all pieces by id, in the spelling of the files.
  ByteLevelBpe(std::vector<std::string> pieces, std::vector<ByteLevelMerge> merges,
               const SpecialIds& special);
  ~ByteLevelBpe() override;
  ByteLevelBpe(ByteLevelBpe&&) noexcept;
  ByteLevelBpe& operator=(ByteLevelBpe&&) noexcept;

  using Tokenizer::encode;
  std::string_view kind() const override { return "byte-bpe"; }
  int64_t size() const override;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  // The same, but where the text spells a special piece, such as "<mask>", its id is meant. White space
  // before a mask goes with it. For texts that the program wrote, not for what comes from outside.
  std::vector<int32_t> encode_marked(std::string_view text) const;
  std::string decode(std::span<const int32_t> ids, bool leave_out_special = false) const override;
  std::string piece(int32_t id) const override;

 protected:
  void save_files(const std::filesystem::path& folder) const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace edgewise::data
