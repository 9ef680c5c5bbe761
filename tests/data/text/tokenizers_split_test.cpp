// UTF-8, classes of characters, and GPT-2's division into words.
#include <algorithm>
#include <regex>
#include <vector>

#include "data/text/text_kit.h"
#include "data/text/unicode.h"
#include "data/text/utf8.h"
#include "data/tokenizers/gpt2_split.h"

namespace edgewise::data {
namespace {

using Words = std::vector<std::string>;

Words split(std::string_view text) {
  Words words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = gpt2_word_end(text, at);
    EXPECT_GT(end, at);
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

TEST(Utf8, WholeCharactersAreReadAndEverythingElseIsLooseBytes) {
  EXPECT_EQ(code_points("a\u00e9\u6771\U0001F600"), U"a\u00e9\u6771\U0001F600");
  for (const std::string bad :
       {"\x80", "\xC3", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xFF", "\xE6\x9D", "\xE6\x41\x41"}) {
    const std::u32string points = code_points(bad);
    EXPECT_GE(static_cast<uint32_t>(points[0]), kLooseByte) << testing::PrintToString(bad);
    EXPECT_EQ(to_utf8(points), bad);
  }
  EXPECT_EQ(code_points("\xC3\xC3\xA9").size(), 2u);  // a cut one takes nothing with it
}

TEST(Utf8, AnyBytesComeBack) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_text(random, 50);
    EXPECT_EQ(to_utf8(code_points(text)), text);
  }
}

TEST(Unicode, ClassesAreThoseOfTheTables) {
  using enum CharClass;
  const auto all = [](std::u32string_view points, CharClass wanted) {
    return std::all_of(points.begin(), points.end(),
                       [&](char32_t point) { return char_class(point) == wanted; });
  };
  EXPECT_TRUE(all(U"azAZ\u00aa\u00b5\u0391\u0416\u05d0\u6771\U0001d54f\U0001e94b\u1c89",
                  kLetter));  // the last: Unicode 16
  EXPECT_TRUE(all(U"09\u00b2\u00bd\u0661\u2167\U0001d7d9", kNumber));
  EXPECT_TRUE(all(U" \t\n\u000b\f\r\u0085\u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000", kSpace));
  EXPECT_TRUE(all(U"!.,'-_\u00ab\u2014\u3002", kPunctuation));
  EXPECT_TRUE(all(U"$+<=>^`|~\u00a9\u20ac\U0001F600", kSymbol));
  EXPECT_TRUE(all(U"\u0001\u001c\u200b\u0301\ufeff\ue000\U0010ffff", kOther));
  EXPECT_EQ(char_class(kLooseByte + 0xC3), kOther);
  EXPECT_TRUE(is_python_space(0x1c));
  EXPECT_FALSE(is_python_space(0x200b));
}

TEST(Unicode, LowerCaseIsPythons) {
  EXPECT_EQ(lower_case(U"A\u00c4\u00d6Z\u0100\u0101\u0130\u01c5\u0416\u1e9e\u2160\U00010400"),
            U"a\u00e4\u00f6z\u0101\u0101i\u0307\u01c6\u0436\u00df\u2170\U00010428");
  // A sigma at the end of a word is another one; marks and apostrophes are looked through.
  EXPECT_EQ(lower_case(U"\u03a3\u039f\u03a3 \u0391\u03a3\u0301 A\u03a3'\u0391 \u03a3 1\u03a3"),
            U"\u03c3\u03bf\u03c2 \u03b1\u03c2\u0301 a\u03c3'\u03b1 \u03c3 1\u03c3");
}

TEST(Gpt2Split, WordsTakeOneBlankBeforeThem) {
  EXPECT_EQ(split("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(split("  two  spaces"), (Words{" ", " two", " ", " spaces"}));
  EXPECT_EQ(split("tail   "), (Words{"tail", "   "}));
  EXPECT_EQ(split("a\n\n b\tc"), (Words{"a", "\n\n", " b", "\t", "c"}));
  EXPECT_EQ(split("x\u00a0y"), (Words{"x", "\u00a0", "y"}));
  EXPECT_EQ(split("12345 $3.50"), (Words{"12345", " $", "3", ".", "50"}));
  EXPECT_EQ(split("e\u0301a"), (Words{"e", "\u0301", "a"}));  // a mark is no letter
}

TEST(Gpt2Split, ContractionsAreWordsInLowerCaseOnly) {
  EXPECT_EQ(split("it's we'll I'd"), (Words{"it", "'s", " we", "'ll", " I", "'d"}));
  EXPECT_EQ(split("IT'S 'tis 's"), (Words{"IT", "'", "S", " '", "tis", " '", "s"}));
  EXPECT_EQ(split("''s 'r 'l '"), (Words{"''", "s", " '", "r", " '", "l", " '"}));
}

TEST(Gpt2Split, LooseBytesAreNoLettersAndNoSpaces) {
  EXPECT_EQ(split("a\xC3 b\xFF\xFE!c"), (Words{"a", "\xC3", " b", "\xFF\xFE!", "c"}));
  EXPECT_EQ(split(std::string("a\0b", 3)), (Words{"a", std::string(1, '\0'), "b"}));
}

// The regular expression itself on ASCII, where std::regex knows the classes.
TEST(Gpt2Split, AgreesWithTheRegularExpressionOnAscii) {
  const std::regex words(R"('s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+)");
  std::mt19937_64 random(2);
  const std::string alphabet = "  \t\nabstrevmld'''019.!";
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 24, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    const Words wanted(std::sregex_token_iterator(text.begin(), text.end(), words), {});
    ASSERT_EQ(split(text), wanted) << testing::PrintToString(text);
  }
}

}  // namespace
}  // namespace edgewise::data
