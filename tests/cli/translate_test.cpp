// Translation from files to a score: the page is followed word for word, and what may go wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "cli/call.h"
#include "cli/pages.h"

namespace edgewise::cli {
namespace {

using kit::ScratchFolder;
using testing::AllOf;
using testing::HasSubstr;

// Sentences of three or four words, and the same words in another language.
void write_pairs(const ScratchFolder& scratch, const std::string& name, int64_t count, uint64_t seed) {
  const char* const words[][2] = {{"the", "der"},    {"a", "ein"},     {"man", "Mann"}, {"dog", "Hund"},
                                  {"sees", "sieht"}, {"likes", "mag"}, {"red", "rote"}, {"old", "alte"}};
  std::string english, german;
  uint64_t state = seed + 99;
  const auto next = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>((state >> 33) % 8);
  };
  for (int64_t n = 0; n < count; ++n) {
    const size_t length = 3 + next() % 2;
    for (size_t w = 0; w < length; ++w) {
      const auto& pair = words[next()];
      english += std::string(w ? " " : "") + pair[0];
      german += std::string(w ? " " : "") + pair[1];
    }
    english += "\n";
    german += "\n";
  }
  scratch.write(name + ".en", english);
  scratch.write(name + ".de", german);
}

TEST(Translate, ThePageWorksAsItIsWritten) {
  const ScratchFolder scratch;
  link_project(scratch);
  std::filesystem::create_directories(scratch / "pairs");
  write_pairs(scratch, "pairs/train", 1500, 1);
  write_pairs(scratch, "pairs/valid", 40, 2);
  write_pairs(scratch, "pairs/test", 60, 3);
  write_pairs(scratch, "new", 20, 4);
  std::filesystem::rename(scratch / "new.en", scratch / "new.txt");
  std::filesystem::rename(scratch / "new.de", scratch / "new.reference");
  std::vector<std::string> lines = commands_of("translate.md", "## Your own sentences");
  ASSERT_EQ(lines.size(), 4u);
  lines[1] += " --set train.steps=500 --set train.warmup_steps=100 --set train.threads=1";  // of 2,000
  std::vector<Call> calls;
  for (const std::string& line : lines) {
    SCOPED_TRACE(line);
    calls.push_back(shell(scratch, line));
    ASSERT_EQ(calls.back().status, 0) << calls.back().err;
  }
  EXPECT_THAT(calls[0].out,
              AllOf(HasSubstr("byte-bpe of"), HasSubstr("judged by bleu-13a; test sets test (60)"),
                    testing::ContainsRegex("train +1500 ")));
  EXPECT_THAT(calls[1].out, testing::ContainsRegex("test BLEU (9[0-9]|100)\\.[0-9]+ %"));
  EXPECT_EQ(calls[2].err, "20 lines translated\n");
  EXPECT_THAT(calls[3].out, testing::ContainsRegex("BLEU +(9[0-9]|100)\\.[0-9]+"));
  EXPECT_THAT(calls[3].out, testing::ContainsRegex("lines +20"));

  // The run is complete without its data; streams and files give the same, in the same order.
  const std::string translations = scratch.read("new.de");
  std::filesystem::rename(scratch / "data", scratch / "gone");
  EXPECT_EQ(shell(scratch, "edgewise translate runs/tiny < new.txt").out, translations);
  EXPECT_EQ(shell(scratch, "edgewise translate runs/tiny new.txt --batch 1").out, translations);
  std::filesystem::rename(scratch / "gone", scratch / "data");

  // What the test wrote is what its BLEU is of.
  const Call again = shell(scratch, "edgewise eval runs/tiny --json --written texts");
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(scratch.read("texts/test.txt"), scratch.read("runs/tiny/written/test.txt"));
  EXPECT_THAT(again.out, AllOf(HasSubstr("\"metric\": \"bleu\""), HasSubstr("\"bleu_test_low\": "),
                               HasSubstr("mean.safetensors")));
  EXPECT_THAT(shell(scratch, "edgewise eval runs/tiny --checkpoint best --set translation.beam=1").out,
              testing::ContainsRegex("BLEU +[0-9.]+ %"));
  EXPECT_THAT(shell(scratch, "edgewise compare runs/tiny").out, HasSubstr("test bleu, %"));

  // What validations are judged by is not what the test is.
  const Call reported = shell(scratch, "edgewise report runs/tiny");
  ASSERT_EQ(reported.status, 0) << reported.err;
  EXPECT_THAT(scratch.read("runs/tiny/report.html"),
              AllOf(testing::ContainsRegex("token_loss [0-9.]+ at step"), HasSubstr("Validation token_loss"),
                    HasSubstr("of the mean of the last validations")));

  // Empty lines stay empty; what cannot be read has its reason, and the rest its translations.
  scratch.write("bad.txt", "the man\n\nna\xEFve\na dog\n");
  const Call bad = shell(scratch, "edgewise translate runs/tiny bad.txt");
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.out, testing::MatchesRegex("[^\n]+\n\n\n[^\n]+\n"));
  EXPECT_THAT(bad.err, AllOf(HasSubstr("bad.txt:3: expected text in UTF-8"),
                             HasSubstr("2 lines translated, 1 empty, 1 could not be read and are empty")));
}

// The same letters as often, other pieces.
std::string reversed_words(std::string text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    std::reverse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                 text.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end + 1;
  }
  return text;
}

TEST(Translate, PiecesAreWordsAndOtherTokensAreRefused) {
  const ScratchFolder scratch;
  link_project(scratch);
  for (const std::string folder : {"a", "b"}) {
    std::filesystem::create_directories(scratch / folder);
    for (const char* const name : {"train", "valid", "test"}) {
      write_pairs(scratch, folder + "/" + name, name[0] == 't' ? 200 : 20, 1);
      for (const std::string language : {".en", ".de"})
        if (folder == "b")
          scratch.write("b/" + std::string(name) + language,
                        reversed_words(scratch.read("b/" + std::string(name) + language)));
    }
    const Call made =
        shell(scratch, "edgewise data translation --source en --target de --subwords 12 --train " + folder +
                           "/train --validation " + folder + "/valid --test " + folder + "/test --out data/" +
                           folder);
    ASSERT_EQ(made.status, 0) << made.err;
  }
  const Call trained = shell(
      scratch,
      "edgewise train recipes/translation/tiny.toml --set data.path=data/a --run run --set train.steps=10 "
      "--set train.warmup_steps=2 --set train.threads=1");
  ASSERT_EQ(trained.status, 0) << trained.err;
  // Whoever has pieces gives them as they are.
  scratch.write("words.txt", "the old man\nred dog\n");
  scratch.write("pieces.txt", "th@@ e o@@ ld m@@ a@@ n\nred do@@ g\n");
  const Call words = shell(scratch, "edgewise translate run words.txt");
  ASSERT_EQ(words.status, 0) << words.err;
  EXPECT_EQ(shell(scratch, "edgewise translate run pieces.txt").out, words.out);
  EXPECT_THAT(shell(scratch, "edgewise predict run words.txt").err, HasSubstr("Use edgewise translate"));
  // A tokeniser of words that exists reads pieces too.
  const Call again =
      shell(scratch,
            "edgewise data translation --source en --target de --tokenizer run/reader/tokenizer "
            "--train a/train --validation a/valid --test a/test --out data/again");
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("judged by bleu-none"));
  // As many tokens, and other ones.
  const Call other = shell(scratch, "edgewise eval run --set data.path=data/b");
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("expected data in the tokens that run was trained on"));
}

TEST(Translate, OtherRunsAndFilesThatDoNotFitAreRefused) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch / "run");
  scratch.write("run/config.toml", "[data]\nname = \"repeated_tokens\"\n");
  EXPECT_THAT(call(scratch, {"translate", (scratch / "run").string()}).err,
              HasSubstr("expected a checkpoint"));
  const Call labels =
      call(scratch, {"train", write_tiny_recipe(scratch), "--run", scratch.file("labels"), "--quiet"});
  ASSERT_EQ(labels.status, 0) << labels.err;
  EXPECT_THAT(call(scratch, {"translate", scratch.file("labels")}).err,
              HasSubstr("expected a run on translations"));
  scratch.write("a.txt", "one\ntwo\n");
  scratch.write("b.txt", "one\n");
  const auto place = [&](const char* name) { return (scratch / name).string(); };
  EXPECT_THAT(call(scratch, {"bleu", place("a.txt"), place("b.txt")}).err,
              HasSubstr("expected as many lines in " + place("b.txt")));
  const Call gone =
      call(scratch, {"data", "translation", "--source", "en", "--target", "de", "--train", place("none"),
                     "--validation", place("none"), "--test", place("none"), "--out", place("out")});
  EXPECT_EQ(gone.status, 1);
  EXPECT_THAT(gone.err, HasSubstr("none.en"));
}

// The golden cases stand in tests/data/text/bleu_test.cpp; this is the command.
TEST(Bleu, ComparesFilesAndSystems) {
  const ScratchFolder scratch;
  scratch.write("a.txt", "The dog bit the man.\nIt wasn't surprising.\nThe man had just bitten him.\n");
  scratch.write("b.txt", "The dog bit a man.\nIt was.\nThe man had him.\n");
  scratch.write("r1.txt", "The dog bit the man.\nIt was not unexpected.\nThe man bit him first.\n");
  scratch.write("r2.txt", "The dog had bit the man.\nNo one was surprised.\nThe man had bitten the dog.\n");
  const auto place = [&](const char* name) { return (scratch / name).string(); };
  const Call both = call(scratch, {"bleu", place("a.txt"), place("r1.txt"), place("r2.txt"), "--json"});
  ASSERT_EQ(both.status, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("\"bleu\":48.53082"));
  EXPECT_THAT(both.out,
              AllOf(HasSubstr("\"words\":17"), HasSubstr("\"reference_words\":18"), HasSubstr("\"low\":")));
  const Call table = call(scratch, {"bleu", place("a.txt"), place("r1.txt"), "--against", place("b.txt")});
  EXPECT_THAT(table.out, AllOf(HasSubstr("45.07"), HasSubstr("p-value"), HasSubstr("95 % of 1000 draws")));
}

}  // namespace
}  // namespace edgewise::cli
