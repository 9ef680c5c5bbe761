// Byte-pair encoding of words between blanks, as subword-nmt's: pieces that go on within their word end in
// "@@".
//
// The text is expected to be divided into words already ("Hello , world !"). Only blanks divide words, line
// ends and blanks at both ends of the text are left aside, and several blanks count as one: decoding gives
// single blanks. A piece that the vocabulary lacks is <unk>. Bytes that are not valid UTF-8 are symbols of
// their own.
#pragma once

#include <edgewise/data/tokenizer.h>

#include <utility>

namespace edgewise::data {

struct SubwordBpeFiles {
  std::filesystem::path codes;       // subword-nmt's: "#version: 0.2", then a pair a line; or .xz
  std::filesystem::path vocabulary;  // fairseq's dictionary: a piece, a blank and its count a line; or .xz
};

struct SubwordPiece {
  std::string text;  // "wo@@"
  int64_t count;     // in the text it was made from
};

class SubwordBpe : public Tokenizer {
 public:
  explicit SubwordBpe(const SubwordBpeFiles& files);
  // Merges in their order; "</w>" ends the last symbol of a word. Pieces in the order of their ids.
  SubwordBpe(std::vector<std::pair<std::string, std::string>> merges, std::vector<SubwordPiece> pieces);
  ~SubwordBpe() override;
  SubwordBpe(SubwordBpe&&) noexcept;
  SubwordBpe& operator=(SubwordBpe&&) noexcept;

  using Tokenizer::encode;
  std::string_view kind() const override { return "subword-bpe"; }
  int64_t size() const override;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids, bool leave_out_special = false) const override;
  std::string piece(int32_t id) const override;

  // The pieces with blanks between them, whether or not the vocabulary has them: what subword-nmt prints for
  // a line.
  std::string segment(std::string_view line) const;
  const std::vector<std::pair<std::string, std::string>>& merges() const;
  const std::vector<SubwordPiece>& pieces() const;  // the first has the first id after the special ones

 protected:
  void save_files(const std::filesystem::path& folder) const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "wo@@ rld" -> "world".
std::string join_subwords(std::string_view pieces);

}  // namespace edgewise::data
