// Byte-level BPE against Hugging Face's tokenizers (golden files), and on any bytes.
#include <edgewise/data/byte_level_bpe.h>
#include <edgewise/data/train_tokenizer.h>

#include <algorithm>
#include <thread>

#include "data/text/text_kit.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

const ByteLevelBpe& golden() {
  static const ByteLevelBpe kTokenizer({golden_path("vocab.json"), golden_path("merges.txt"), {}});
  return kTokenizer;
}

// The text that write_golden.py trains on.
std::vector<std::string> golden_lines() {
  const std::string script = golden_text("write_golden.py");
  const std::string begin = "TEXT = \"\"\"";
  const size_t at = script.find(begin) + begin.size();
  const std::string text = script.substr(at, script.find("\"\"\"", at) - at);
  std::vector<std::string> lines;
  for (size_t from = 0; from < text.size();) {
    const size_t end = text.find('\n', from) + 1;
    lines.push_back(text.substr(from, end - from));
    from = end;
  }
  return lines;
}

TEST(ByteLevelBpe, IdsAreThoseOfTheRealPackage) {
  const nlohmann::json cases = golden_json("byte_level.json");
  ASSERT_GE(cases.size(), 30u);
  for (const nlohmann::json& each : cases) {
    const std::string text = each["text"];
    const std::vector<int32_t> ids = golden().encode(text);
    EXPECT_EQ(ids, each["ids"].get<std::vector<int32_t>>()) << testing::PrintToString(text);
    EXPECT_EQ(golden().decode(ids), text);
    EXPECT_EQ(golden().encode_marked(text), each["marked"].get<std::vector<int32_t>>())
        << testing::PrintToString(text);
  }
}

TEST(ByteLevelBpe, SpecialPiecesInATextAreTextUnlessAskedFor) {
  const std::string text = "a <mask> b</s>";
  for (const int32_t id : golden().encode(text)) EXPECT_FALSE(golden().special().contains(id));
  EXPECT_EQ(golden().decode(golden().encode(text)), text);
  const std::vector<int32_t> marked = golden().encode_marked(text);
  EXPECT_EQ(golden().decode(marked), "a<mask> b</s>");
  EXPECT_EQ(golden().decode(marked, true), "a b");
}

TEST(ByteLevelBpe, FramesAreRobertas) {
  const std::vector<int32_t> a = golden().encode("the edges"), b = golden().encode("heads");
  std::vector<int32_t> one = {0}, pair = {0};
  one.insert(one.end(), a.begin(), a.end());
  one.push_back(2);
  pair = one;
  pair.push_back(2);
  pair.insert(pair.end(), b.begin(), b.end());
  pair.push_back(2);
  EXPECT_EQ(framed(golden(), "the edges"), one);
  EXPECT_EQ(framed_pair(golden(), "the edges", "heads"), pair);
}

TEST(ByteLevelBpe, EveryTextComesBackByteForByte) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text(random, 120);
    const std::vector<int32_t> ids = golden().encode(text);
    ASSERT_EQ(golden().decode(ids), text);
    for (const int32_t id : ids) ASSERT_TRUE(id >= 5 && id < golden().size());
  }
  EXPECT_TRUE(golden().encode("").empty());
  EXPECT_EQ(golden().decode({}), "");
}

TEST(ByteLevelBpe, LongWordsAndLinesTakeTimeInProportion) {
  // Quadratic work on any of these would be hours.
  std::mt19937_64 random(7);
  std::string letters(2'000'000, ' ');
  for (char& c : letters) c = static_cast<char>('a' + random() % 26);
  std::string words;
  while (words.size() < 10'000'000) words += "the learned edges of the heads ";
  for (const std::string& text : {std::string(2'000'000, 'a'), letters, std::string(2'000'000, ' '),
                                  std::string(2'000'000, '\xFF'), std::string(2'000'000, '\0'), words}) {
    const std::vector<int32_t> ids = golden().encode(text);
    EXPECT_TRUE(golden().decode(ids) == text);
  }
  EXPECT_EQ(golden().encode_marked(std::string(2'000'000, '<')),
            golden().encode(std::string(2'000'000, '<')));
}

TEST(ByteLevelBpe, SeveralThreadsGetTheSameIds) {
  const std::vector<std::string> lines = golden_lines();
  std::vector<std::vector<int32_t>> wanted;
  wanted.reserve(lines.size());
  for (const std::string& line : lines) wanted.push_back(golden().encode(line));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  threads.reserve(wrong.size());
  for (int& mine : wrong)
    threads.emplace_back([&] {
      for (int round = 0; round < 300; ++round)
        for (size_t i = 0; i < lines.size(); ++i) mine += golden().encode(lines[i]) != wanted[i];
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(ByteLevelBpe, IdsOutsideTheVocabularyAreRefused) {
  EXPECT_EQ(error_of([] { golden().decode(std::vector<int32_t>{340}); }),
            "byte-level BPE: expected ids from 0 to 339; got 340");
  EXPECT_EQ(error_of([] { golden().piece(-1); }), "byte-level BPE: expected ids from 0 to 339; got -1");
}

TEST(TrainByteLevelBpe, FilesAreThoseOfTheRealPackage) {
  ByteLevelBpeTrainer trainer;
  for (const std::string& line : golden_lines()) trainer.add(line);
  const ByteLevelBpe trained = trainer.train({.vocabulary = 340, .min_count = 2});
  const kit::ScratchFolder folder;
  trained.save(folder.path());
  EXPECT_EQ(folder.read("merges.txt"), golden_text("merges.txt"));
  EXPECT_EQ(nlohmann::json::parse(folder.read("vocab.json")), golden_json("vocab.json"));
}

TEST(TrainByteLevelBpe, TheOrderOfTheTextsDoesNotMatter) {
  std::vector<std::string> lines = golden_lines();
  const kit::ScratchFolder folder;
  std::string first;
  for (int round = 0; round < 3; ++round) {
    ByteLevelBpeTrainer trainer;
    for (const std::string& line : lines) trainer.add(line);
    trainer.train({.vocabulary = 330, .min_count = 2}).save(folder.path());
    if (round == 0) first = folder.read("merges.txt");
    EXPECT_EQ(folder.read("merges.txt"), first);
    std::rotate(lines.begin(), lines.begin() + 2, lines.end());
  }
}

TEST(TrainByteLevelBpe, TiesGoToTheLowerIds) {
  ByteLevelBpeTrainer trainer;
  for (const auto& [word, count] : {std::pair{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}}) {
    std::string line;
    for (int i = 0; i < count; ++i) line += std::string(i > 0 ? " " : "") + word;
    trainer.add(line);
  }
  const kit::ScratchFolder folder;
  trainer.train({.vocabulary = 5 + 256 + 12, .min_count = 2}).save(folder.path());
  EXPECT_EQ(folder.read("merges.txt"),
            "#version: 0.2\ne s\nes t\nl o\nlo w\ne w\nn ew\nnew est\n\u0120 low\n\u0120 newest\nd est\ni "
            "dest\nw idest\n");
}

TEST(TrainByteLevelBpe, TooLittleTextGivesFewerPiecesAndBadOptionsAreRefused) {
  ByteLevelBpeTrainer trainer;
  EXPECT_EQ(trainer.train().size(), 261);
  trainer.add("aa aa");
  EXPECT_EQ(trainer.train().size(), 262);  // "aa"; the blank before it stands there once
  EXPECT_THAT(error_of([&] { trainer.train({.vocabulary = 260, .min_count = 2}); }),
              testing::HasSubstr("from 261 to 2^30; got 260"));
  EXPECT_THAT(error_of([&] { trainer.train({.vocabulary = 300, .min_count = 0}); }),
              testing::HasSubstr("min_count"));
}

TEST(TrainByteLevelBpe, LearnsFromAnyBytes) {
  std::mt19937_64 random(8);
  ByteLevelBpeTrainer trainer;
  for (int i = 0; i < 200; ++i) trainer.add(random_text(random, 200));
  trainer.add(std::string(300'000, 'a'));  // one word
  const ByteLevelBpe trained = trainer.train({.vocabulary = 600, .min_count = 2});
  const kit::ScratchFolder folder;
  trained.save(folder.path());
  const auto loaded = load_tokenizer(folder.path());
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_text(random, 100);
    const std::vector<int32_t> ids = trained.encode(text);
    ASSERT_EQ(loaded->encode(text), ids);
    ASSERT_EQ(loaded->decode(ids), text);
  }
}

}  // namespace
}  // namespace edgewise::data
