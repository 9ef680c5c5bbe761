// What a model reads of texts and pairs: marks, cuts, and that a saved reader reads the same.
#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/examples/text_reader.h>
#include <edgewise/data/train_tokenizer.h>

#include "data/examples/examples_kit.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> bytes() {
  return std::make_shared<BytesTokenizer>();
}

// <s> 0 <pad> 1 </s> 2 <unk> 3 <mask> 4, then bytes.
std::shared_ptr<const Tokenizer> with_marks() {
  ByteLevelBpeTrainer trainer;
  trainer.add("ab");
  return std::make_shared<ByteLevelBpe>(trainer.train({.vocabulary = 261}));
}

TextReaderOptions two_classes(int64_t max_length, const std::string& pair = "") {
  return {.classes = {"no", "yes"}, .max_length = max_length, .pair_column = pair};
}

Ids read(const TextReader& reader, std::string_view text, std::optional<std::string_view> pair = {}) {
  Ids ids;
  reader.read(text, pair, ids);
  return ids;
}

TEST(TextReader, BytesHaveASeparatorAndAMaskBehindThem) {
  const TextReader one(bytes(), two_classes(16)), two(bytes(), two_classes(16, "other"));
  EXPECT_EQ(one.vocabulary(), 259);  // padding is one of their own
  EXPECT_EQ(one.padding(), 0);
  EXPECT_EQ(one.mask(), 258);
  EXPECT_THAT(read(one, "ab"), ElementsAre('a' + 1, 'b' + 1));
  EXPECT_THAT(read(two, "ab", "c"), ElementsAre('a' + 1, 'b' + 1, 257, 'c' + 1));
}

TEST(TextReader, MarksStandAsRobertaReadsThem) {
  const auto tokenizer = with_marks();
  const TextReader one(tokenizer, two_classes(16)), two(tokenizer, two_classes(16, "other"));
  EXPECT_EQ(one.vocabulary(), 261);
  EXPECT_EQ(one.mask(), 4);
  EXPECT_EQ(read(one, "ab"), framed(*tokenizer, "ab"));
  EXPECT_EQ(read(two, "ab", "c"), framed_pair(*tokenizer, "ab", "c"));
}

TEST(TextReader, TheLongerTextIsCutFirst) {
  const TextReader one(bytes(), two_classes(8)), two(bytes(), two_classes(9, "other"));
  Ids ids;
  EXPECT_TRUE(one.read("123456789", {}, ids));
  EXPECT_EQ(ids.size(), 8u);
  ids.clear();
  EXPECT_FALSE(one.read("12345678", {}, ids));
  const auto lengths = [&](const std::string& first, const std::string& second) {
    const Ids both = read(two, first, second);
    EXPECT_LE(both.size(), 9u);
    const auto middle = std::find(both.begin(), both.end(), 257) - both.begin();
    return std::pair(middle, std::ssize(both) - middle - 1);
  };
  using Lengths = std::pair<int64_t, int64_t>;
  EXPECT_EQ(lengths("1234", "5678"), Lengths(4, 4));
  EXPECT_EQ(lengths("12", "3456789"), Lengths(2, 6));
  EXPECT_EQ(lengths("1234567", "89"), Lengths(6, 2));
  EXPECT_EQ(lengths("123456", "123456789"), Lengths(4, 4));
}

TEST(TextReader, ASavedOneReadsTheSame) {
  const ScratchFolder scratch;
  TextReaderOptions options = two_classes(32, "b");
  options.text_column = "a";
  options.metric = "matthews";
  const TextReader reader(with_marks(), options);
  reader.save(scratch / "reader");
  const TextReader again = TextReader::load(scratch / "reader");
  EXPECT_TRUE(again.options() == reader.options());
  EXPECT_TRUE(again.reads_like(reader));
  EXPECT_EQ(read(again, "ab", "ba"), read(reader, "ab", "ba"));
  EXPECT_FALSE(again.reads_like(TextReader(bytes(), options)));
  const TextReader numbers(bytes(), {.answer = AnswerKind::kNumber, .mean = 0.1, .scale = 1.0 / 3});
  numbers.save(scratch / "numbers");
  EXPECT_TRUE(TextReader::load(scratch / "numbers").options() == numbers.options());
}

TEST(TextReader, WhatIsWrongIsSaid) {
  const ScratchFolder scratch;
  const TextReader reader(bytes(), two_classes(16));
  EXPECT_EQ(complaint([&] { read(reader, ""); }), "expected a text; it is empty");
  EXPECT_EQ(complaint([&] { read(reader, "a", "b"); }), "expected one text; got a pair");
  EXPECT_EQ(reader.class_of("yes"), 1);
  EXPECT_EQ(complaint([&] { reader.class_of("maybe"); }),
            "expected one of the 2 labels of the training examples, 'no', 'yes'; found 'maybe'");
  EXPECT_THAT(complaint([] { TextReader(bytes(), {.classes = {"x"}}); }), HasSubstr("at least two classes"));
  EXPECT_THAT(complaint([] { TextReader(bytes(), two_classes(4)); }), HasSubstr("at least 8 tokens"));
  reader.save(scratch / "reader");
  const auto loading = [&](const std::string& json) {
    scratch.write("reader/reader.json", json);
    return complaint([&] { TextReader::load(scratch / "reader"); });
  };
  EXPECT_THAT(loading("{"), HasSubstr("reader.json: expected an object of JSON"));
  EXPECT_THAT(loading("{\"format\": \"other\"}"),
              HasSubstr("reader.json: expected the format edgewise.text_reader.1; found 'other'"));
  EXPECT_THAT(loading("{\"format\": \"edgewise.text_reader.1\"}"), HasSubstr("expected the key 'answer'"));
  EXPECT_THAT(complaint([&] { TextReader::load(scratch / "none"); }), HasSubstr("there is none"));
}

}  // namespace
}  // namespace edgewise::data
