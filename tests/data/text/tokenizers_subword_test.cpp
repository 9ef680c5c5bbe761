// Subword BPE against subword-nmt (golden files), and what surrounds the pieces.
#include <edgewise/data/subword_bpe.h>
#include <edgewise/data/train_tokenizer.h>

#include "data/text/text_kit.h"
#include "data/tokenizers/tokenizer_files.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

SubwordBpe trained_on(const std::vector<std::string>& lines, int64_t merges) {
  SubwordBpeTrainer trainer;
  for (const std::string& line : lines) trainer.add(line);
  return trainer.train({.vocabulary = merges, .min_count = 2});
}

std::vector<std::string> words_times(const std::vector<std::pair<std::string, int>>& words) {
  std::vector<std::string> lines;
  for (const auto& [word, count] : words)
    for (int i = 0; i < count; ++i) lines.push_back(word);
  return lines;
}

std::string joined(const SubwordBpe& bpe) {
  std::string text;
  for (const auto& [left, right] : bpe.merges()) text += left + " " + right + "; ";
  return text;
}

TEST(SubwordBpe, LearnsAndAppliesAsTheOriginal) {
  const SubwordBpe bpe =
      trained_on(words_times({{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}}), 10);
  EXPECT_EQ(joined(bpe),
            "s t</w>; e st</w>; l o; w est</w>; n e; ne west</w>; lo w</w>; w i; wi d; wid est</w>; ");
  EXPECT_EQ(bpe.segment("lowest newer widest low wide lowly"),
            "lo@@ west ne@@ w@@ e@@ r widest low wid@@ e lo@@ w@@ l@@ y");
  EXPECT_EQ(joined(trained_on({"the cat sat on the mat", "the cat ate the rat", "that cat sat"}, 10)),
            "a t</w>; t h; th e</w>; c at</w>; s at</w>; ");
}

TEST(SubwordBpe, GoldenLinesAreThoseOfTheRealPackage) {
  const std::string script = golden_text("write_golden.py");
  const std::string begin = "TEXT = \"\"\"";
  const size_t at = script.find(begin) + begin.size();
  const SubwordBpe bpe = trained_on({script.substr(at, script.find("\"\"\"", at) - at)}, 80);
  const kit::ScratchFolder folder;
  bpe.save(folder.path());
  EXPECT_EQ(folder.read("codes.txt"), golden_text("codes.txt"));
  const nlohmann::json cases = golden_json("subword.json");
  ASSERT_GE(cases.size(), 25u);
  for (const nlohmann::json& each : cases)
    EXPECT_EQ(bpe.segment(each["text"].get<std::string>()), each["pieces"].get<std::string>())
        << each["text"];
}

TEST(SubwordBpe, PiecesAreNumberedByFrequencyAfterTheSpecialOnes) {
  const SubwordBpe bpe = trained_on({"b a a b a c", "ab ab"}, 1);
  EXPECT_EQ(joined(bpe), "a b</w>; ");
  std::string pieces;
  for (int32_t id = 0; id < bpe.size(); ++id) pieces += bpe.piece(id) + " ";
  EXPECT_EQ(pieces, "<s> <pad> </s> <unk> a ab b c ");
  EXPECT_EQ(bpe.pieces()[0].count, 3);
  EXPECT_EQ(bpe.encode("a ab c"), (std::vector<int32_t>{4, 5, 7}));
  EXPECT_EQ(bpe.encode("abc <s> \xFF"),
            (std::vector<int32_t>{3, 3, 7, 3, 3, 3, 3}));  // a special piece in a text is text
}

TEST(SubwordBpe, DecodingJoinsPiecesWithSingleBlanks) {
  const SubwordBpe bpe = trained_on({"low low lower lower"}, 2);
  const std::string text = "lower low low";
  EXPECT_EQ(bpe.decode(bpe.encode("  " + text + " \n")), text);
  EXPECT_EQ(bpe.decode(bpe.encode("lower  low   low")), text);
  std::vector<int32_t> ids = framed(bpe, text);
  EXPECT_EQ(bpe.decode(ids), "<s> lower low low </s>");
  EXPECT_EQ(bpe.decode(ids, true), text);
  EXPECT_EQ(bpe.decode(bpe.encode("low x"), true), "low <unk>");
  EXPECT_TRUE(bpe.encode("").empty());
  EXPECT_TRUE(bpe.encode(" \r\n").empty());
  EXPECT_EQ(join_subwords("wo@@ rld a@@ b@@"), "world ab");
  EXPECT_EQ(join_subwords("@@@ x@@x"), "@x@@x");
}

TEST(SubwordBpe, TextsOfItsCharactersComeBackAndOthersHaveUnknownIds) {
  std::mt19937_64 random(9);
  std::vector<std::string> lines;
  lines.reserve(100);
  for (int i = 0; i < 100; ++i) lines.push_back(random_text(random, 60));
  const SubwordBpe bpe = trained_on(lines, 100);
  const kit::ScratchFolder folder;
  bpe.save(folder.path());
  const auto loaded = load_tokenizer(folder.path());
  EXPECT_EQ(loaded->size(), bpe.size());
  for (int i = 0; i < 500; ++i) {
    const std::string text = random_text(random, 60);
    const std::vector<int32_t> ids = bpe.encode(text);
    ASSERT_EQ(loaded->encode(text), ids);
    for (const int32_t id : ids) ASSERT_TRUE(id >= 3 && id < bpe.size());
    std::string words;  // the text with single blanks
    for (size_t at = text.find_first_not_of("\r\n "); at < text.size();
         at = text.find_first_not_of(' ', at)) {
      const size_t end = std::min(text.find(' ', at), text.find_last_not_of("\r\n ") + 1);
      if (at >= end) break;
      words += (words.empty() ? "" : " ") + text.substr(at, end - at);
      at = end;
    }
    // A word that ends in the mark of a piece is joined with the next, as in the original.
    if (words.find("@@ ") == std::string::npos && !words.ends_with("@@")) {
      ASSERT_EQ(join_subwords(bpe.segment(text)), words) << testing::PrintToString(text);
    }
  }
}

TEST(SubwordBpe, LongWordsTakeTimeInProportion) {
  const SubwordBpe bpe = trained_on({"aaaa aaaa aaaaaaaa aaaaaaaa low lower lower"}, 8);
  const std::string word(2'000'000, 'a');
  EXPECT_TRUE(join_subwords(bpe.segment(word)) == word);
  SubwordBpeTrainer trainer;
  std::mt19937_64 random(10);
  std::string letters(1'000'000, ' ');
  for (char& c : letters) c = static_cast<char>('a' + random() % 26);
  trainer.add(letters);
  EXPECT_EQ(trainer.train({.vocabulary = 500, .min_count = 2}).merges().size(), 500u);
}

}  // namespace
}  // namespace edgewise::data
