// Texts as data: splits, vocabulary, pieces that go on where the last ones ended, and what is no text.
#include <edgewise/data/characters.h>

#include <edgewise/data/batches.h>

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include <ATen/Functions.h>

#include "data/expect_error.h"
#include "data/readers/compressed.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

std::string letters(size_t length) {
  std::string text;
  for (size_t n = 0; n < length; ++n) text += static_cast<char>('a' + (n * n + n / 7) % 11);
  return text;
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

// The bytes of a row of tokens.
std::string spelled(const Characters& text, const at::Tensor& row) {
  std::string result;
  for (int64_t n = 0; n < row.numel(); ++n)
    result += static_cast<char>(text.bytes()[static_cast<size_t>(row[n].item<int64_t>())]);
  return result;
}

TEST(Characters, AreSplitAndCutIntoPieces) {
  const std::string all = letters(1000);
  const Characters text("letters", bytes_of(all), 8);
  EXPECT_EQ(text.characters(Split::kTrain), 900);
  EXPECT_EQ(text.characters(Split::kValidation), 50);
  EXPECT_EQ(text.characters(Split::kTest), 50);
  EXPECT_EQ(text.size(Split::kTrain), 112);
  EXPECT_EQ(text.size(Split::kTest), 6);
  EXPECT_LE(text.vocabulary(), 11);
  EXPECT_TRUE(std::is_sorted(text.bytes().begin(), text.bytes().end()));
  for (const auto& [split, begin] :
       {std::pair(Split::kTrain, 0), std::pair(Split::kValidation, 900), std::pair(Split::kTest, 950)}) {
    std::vector<int64_t> indices(static_cast<size_t>(text.size(split)));
    std::iota(indices.begin(), indices.end(), 0);
    const Batch batch = text.batch(split, indices);
    EXPECT_FALSE(batch.towers[0].mask.defined());
    for (const int64_t index : indices) {
      const auto from = static_cast<size_t>(begin + 8 * index);
      EXPECT_EQ(spelled(text, batch.towers[0].tokens[index]), all.substr(from, 8));
      EXPECT_EQ(spelled(text, batch.labels[index]), all.substr(from + 1, 8));
    }
  }
}

TEST(Characters, TheStandardSizeHasTheStandardSplit) {
  std::vector<uint8_t> all(100'000'000, 'x');
  const Characters text("enwik8", std::move(all), 512);
  EXPECT_EQ(text.characters(Split::kTrain), 90'000'000);
  EXPECT_EQ(text.characters(Split::kValidation), 5'000'000);
  EXPECT_EQ(text.characters(Split::kTest), 5'000'000);
}

TEST(Characters, UnigramBitsAreTheEntropyOfLetters) {
  std::string all;
  for (int n = 0; n < 4000; ++n) all += "aabc";  // 1/2, 1/4, 1/4
  EXPECT_NEAR(Characters("abc", bytes_of(all), 8).unigram_bits(), 1.5, 0.01);
}

TEST(Characters, ReadsPlainAndCompressedFiles) {
  const kit::ScratchFolder scratch;
  const std::string all = letters(600);
  scratch.write("plain.txt", all);
  const std::vector<uint8_t> packed = xz_compress(bytes_of(all));
  scratch.write("packed.txt.xz", {packed.begin(), packed.end()});
  for (const char* name : {"plain.txt", "packed.txt", "packed.txt.xz"}) {
    const Characters text(scratch / name, 8);
    const std::vector<int64_t> first = {0};
    EXPECT_EQ(spelled(text, text.batch(Split::kTrain, first).towers[0].tokens[0]), all.substr(0, 8)) << name;
  }
}

TEST(Characters, ErrorsSayWhatToDo) {
  const kit::ScratchFolder scratch;
  const auto open = [&](const std::string& name) { Characters(scratch / name, 16); };
  EXPECT_ERROR(open("none.txt"), "there is none. Set data.path");
  EXPECT_ERROR(open(""), "is a folder");
  scratch.write("empty.txt", "");
  EXPECT_ERROR(open("empty.txt"), "the file is empty");
  scratch.write("short.txt", letters(300));
  EXPECT_ERROR(open("short.txt"), "in the validation part of short.txt; it has 15 of 300");
  scratch.write("torn.txt.xz", "no xz at all");
  EXPECT_ERROR(open("torn.txt"), "torn.txt.xz");
  const Characters text("letters", bytes_of(letters(600)), 8);
  const std::vector<int64_t> wrong = {text.size(Split::kTest)};
  EXPECT_ERROR(text.batch(Split::kTest, wrong), "expected an index");
}

TEST(StreamRows, EveryRowGoesOnWhereItEnded) {
  for (const int64_t size : {7, 12, 23}) {
    const StreamRows rows(size, 5);
    std::set<int64_t> seen;
    std::vector<int64_t> before;
    for (int64_t batch = 0; batch < rows.batches(); ++batch) {
      const std::vector<int64_t> indices = rows.indices(batch);
      EXPECT_EQ(indices.size() == 5, batch < rows.full_batches());
      for (size_t row = 0; row < indices.size(); ++row) {
        if (batch > 0) {
          EXPECT_EQ(indices[row], before[row] + 1);
        }
        EXPECT_TRUE(seen.insert(indices[row]).second);
      }
      before = indices;
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), size);
  }
  EXPECT_ERROR(StreamRows(3, 4), "a smaller batch");
}

}  // namespace
}  // namespace edgewise::data
