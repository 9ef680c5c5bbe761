// Plain text into token ids: where it is cut, what a tokeniser learns from, what is refused.
#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/examples/import_plain_text.h>

#include "data/examples/examples_kit.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;
using testing::HasSubstr;

std::string as_bytes(const TokenExamples::Part& part) {
  std::string text;
  for (const int32_t id : part.tokens) text += static_cast<char>(id - 1);
  return text;
}

TEST(ImportPlainText, TheLastTwentiethsAreHeldOutWhereLinesEnd) {
  const ScratchFolder scratch;
  std::string text;
  for (int n = 0; n < 100; ++n) text += "line " + std::to_string(100 + n) + "\n";
  PlainTextOptions options{
      .train = {scratch.write("a.txt", text.substr(0, 450)), scratch.write("b.txt", text.substr(450))},
      .tokenizer = std::make_shared<BytesTokenizer>()};
  const ImportedText made = import_plain_text(options);
  EXPECT_EQ(as_bytes(made.examples.part(Split::kTrain)), text.substr(0, 810));
  EXPECT_EQ(as_bytes(made.examples.part(Split::kValidation)), text.substr(810, 45));
  EXPECT_EQ(as_bytes(made.examples.part(Split::kTest)), text.substr(855));
  EXPECT_EQ(made.examples.part(Split::kTrain).bytes, 810);
  EXPECT_EQ(made.reader.options().answer, AnswerKind::kNone);
  options.validation = {scratch.write("v.txt", "v\n")};
  options.test = {scratch.write("u.txt", "u")};
  const ImportedText given = import_plain_text(options);
  EXPECT_EQ(as_bytes(given.examples.part(Split::kTrain)), text);
  EXPECT_EQ(as_bytes(given.examples.part(Split::kTest)), "u");
}

TEST(ImportPlainText, TheTokeniserLearnsFromTheTrainingPartAlone) {
  const ScratchFolder scratch;
  std::string text;
  for (int n = 0; n < 90; ++n) text += "abab abab\n";
  for (int n = 0; n < 10; ++n) text += "zyzy zyzy\n";
  const ImportedText made = import_plain_text({.train = {scratch.write("a.txt", text)}, .vocabulary = 300});
  for (int32_t id = 261; id < made.reader.tokenizer().size(); ++id)
    EXPECT_THAT(made.reader.tokenizer().piece(id), testing::Not(HasSubstr("zy")));
  EXPECT_GT(made.reader.tokenizer().size(), 262);
  const TokenExamples::Part& test = made.examples.part(Split::kTest);
  EXPECT_EQ(made.reader.tokenizer().decode(test.tokens), text.substr(950));
}

TEST(ImportPlainText, WhatIsWrongIsSaidWithFileAndLine) {
  const ScratchFolder scratch;
  const auto says = [&](const std::string& text, bool any_bytes = false) {
    PlainTextOptions options{.train = {scratch.write("a.txt", text)},
                             .tokenizer = std::make_shared<BytesTokenizer>(),
                             .any_bytes = any_bytes};
    return complaint([&] { import_plain_text(options); });
  };
  EXPECT_THAT(says("good\nna\xEFve\n"), HasSubstr("a.txt:2: expected text in UTF-8; found the byte 0xEF"));
  EXPECT_THAT(says("good\n" + std::string(10 << 20, 'x')),
              HasSubstr("a.txt:2: expected lines of at most 8388608"));
  EXPECT_THAT(says(""), HasSubstr("a.txt; it is empty"));
  EXPECT_THAT(says("one line alone"), HasSubstr("validation has none, for the text has too few lines"));
  EXPECT_THAT(says("one line alone\xEF", true), HasSubstr("too few lines"));
  PlainTextOptions half{.train = {scratch.write("a.txt", "x\n")}, .test = {scratch.file("a.txt")}};
  EXPECT_THAT(complaint([&] { import_plain_text(half); }), HasSubstr("or for neither; got only test"));
}

}  // namespace
}  // namespace edgewise::data
