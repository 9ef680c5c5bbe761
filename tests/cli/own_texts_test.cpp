// Texts of one's own, from a table to answers: the page is followed word for word, and what may go wrong.
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

// Five classes that a word gives away, among words that do not.
std::string reviews(int rows) {
  const char* const tells[] = {"awful", "poor", "fair", "good", "superb"};
  const char* const words[] = {"the", "film", "was", "so", "and", "then", "it", "we", "saw"};
  std::string text = "stars\treview\n";
  for (int n = 0; n < rows; ++n) {
    const int stars = n % 5;
    text += std::to_string(stars + 1) + "\t";
    for (int w = 0; w < 6; ++w)
      text += std::string(w == n % 6 ? tells[stars] : words[(n * 7 + w * 5) % 9]) + (w < 5 ? " " : "\n");
  }
  return text;
}

TEST(OwnTexts, ThePageWorksAsItIsWritten) {
  const ScratchFolder scratch;
  link_project(scratch);
  scratch.write("reviews.tsv", reviews(1000));
  scratch.write("new.txt", "the film was superb\nit was awful so we saw it\n");
  const std::vector<std::string> lines = commands_of("own-data.md", "## Texts with labels");
  ASSERT_EQ(lines.size(), 4u);
  std::vector<Call> calls;
  for (const std::string& line : lines) {
    SCOPED_TRACE(line);
    calls.push_back(shell(scratch, line));
    ASSERT_EQ(calls.back().status, 0) << calls.back().err;
  }
  EXPECT_THAT(calls[0].out, AllOf(HasSubstr("5 classes, judged by accuracy"), HasSubstr("byte-bpe of"),
                                  testing::ContainsRegex("train +800 ")));
  EXPECT_THAT(calls[1].out, HasSubstr("most frequent label of train 20.00 %"));
  EXPECT_THAT(calls[2].out, testing::ContainsRegex("accuracy +(9[5-9]|100)\\.[0-9]+ %"));
  const std::string answers = scratch.read("answers.jsonl");
  EXPECT_EQ(std::count(answers.begin(), answers.end(), '\n'), 100);
  EXPECT_THAT(answers, testing::StartsWith("{\"line\":"));
  EXPECT_THAT(answers, HasSubstr("\"right\":\"3\",\"label\":\"3\",\"probabilities\":{\"3\":0.9"));
  EXPECT_THAT(calls[3].out,
              testing::MatchesRegex("\\{\"line\":1,\"label\":\"5\",.*\n\\{\"line\":2,\"label\":\"1\",.*\n"));
  EXPECT_EQ(calls[3].err, "2 texts answered\n");

  // The run is complete without its data; streams, tables and files give the same answers.
  std::filesystem::rename(scratch / "data", scratch / "gone");
  EXPECT_EQ(shell(scratch, "edgewise predict runs/reviews < new.txt").out, calls[3].out);
  EXPECT_EQ(shell(scratch, "edgewise predict runs/reviews new.txt --batch 1").out, calls[3].out);
  EXPECT_EQ(shell(scratch, "edgewise predict runs/reviews new.txt --out o.jsonl").out, "");
  EXPECT_EQ(scratch.read("o.jsonl"), calls[3].out);
  scratch.write("new.tsv", "id\treview\n7\tthe film was superb\n");
  EXPECT_THAT(shell(scratch, "edgewise predict runs/reviews new.tsv").out,
              HasSubstr("\"line\":2,\"label\":\"5\""));
  scratch.write("new.jsonl", "{\"review\": \"it was awful\"}\n");
  EXPECT_THAT(shell(scratch, "edgewise predict runs/reviews new.jsonl new.tsv --top 2").out,
              testing::MatchesRegex("\\{\"line\":1,\"file\":\"new.jsonl\",\"label\":\"1\",\"probabilities\":"
                                    "\\{\"1\":[0-9.e-]+,\"[2-5]\":[0-9.e-]+\\}\\}\n.*new.tsv.*\n"));

  // What cannot be read has its reason, and the rest its answers.
  scratch.write("bad.txt", "superb\n\nna\xEFve\npoor\n");
  const Call bad = shell(scratch, "edgewise predict runs/reviews bad.txt");
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.out, AllOf(HasSubstr("{\"line\":1,\"label\":\"5\""), HasSubstr("{\"line\":2,\"error\":"),
                             HasSubstr("{\"line\":3,\"error\":\"expected text in UTF-8; found the byte 0xEF"),
                             HasSubstr("{\"line\":4,\"label\":\"2\"")));
  EXPECT_EQ(bad.err, "2 texts answered, 2 could not be read; their lines have an error instead\n");
  const std::string long_line = "superb\n" + std::string(10 << 20, 'x') + "\n";
  scratch.write("long.txt", long_line);
  for (const std::string way : {"long.txt", "< long.txt"}) {
    const Call cut = shell(scratch, "edgewise predict runs/reviews " + way);
    EXPECT_EQ(cut.status, 1);
    EXPECT_THAT(cut.out, testing::StartsWith("{\"line\":1,\"label\":\"5\""))
        << "what came before is not lost";
    EXPECT_THAT(cut.err, HasSubstr(":2: expected lines of at most 8388608 bytes"));
  }
  const Call column = shell(scratch, "edgewise predict runs/reviews new.tsv --text text");
  EXPECT_THAT(column.err,
              HasSubstr("new.tsv:1: expected a column 'text'; the first line names 'id', 'review'"));
}

TEST(OwnTexts, NumbersOfPairsArePredicted) {
  const ScratchFolder scratch;
  std::string rows;
  for (int n = 0; n < 60; ++n)
    rows += "{\"a\": \"" + std::string(static_cast<size_t>(n % 6 + 1), 'x') +
            "\", \"b\": \"y\", \"score\": " + std::to_string(n % 6) + ".5}\n";
  scratch.write("t.jsonl", rows);
  const Call made = shell(scratch,
                          "edgewise data jsonl t.jsonl --text a --pair b --label score --numbers "
                          "--tokenizer bytes --out data");
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out,
              AllOf(HasSubstr("numbers of mean 3.0000"), HasSubstr("judged by pearson, bytes of 259 ids"),
                    HasSubstr("of the validation and test texts are in train too")));
  const Call trained = shell(
      scratch,
      "edgewise train " EDGEWISE_SOURCE_DIR
      "/recipes/texts/classify.toml --set data.path=data --set train.steps=60 --set train.warmup_steps=6 "
      "--set train.eval_every=20 --set model.dim=16 --set train.threads=1 --set attention.kind=dense --run "
      "run");
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("test Pearson correlation "));
  EXPECT_THAT(shell(scratch, "edgewise eval run").out,
              AllOf(HasSubstr("Spearman correlation"), HasSubstr("root mean squared error"),
                    testing::Not(HasSubstr("accuracy"))));
  EXPECT_THAT(shell(scratch, "edgewise eval run --json").out,
              AllOf(HasSubstr("\"metric\": \"pearson\""), testing::Not(HasSubstr("accuracy"))));
  EXPECT_THAT(shell(scratch, "edgewise compare run").out, HasSubstr("test pearson, %"));
  EXPECT_THAT(
      shell(scratch, "printf 'xxxxxx\\ty\\nx\\ty\\nxxx\\n' | edgewise predict run").out,
      testing::MatchesRegex("\\{\"line\":1,\"number\":[0-9.]+\\}\n\\{\"line\":2,\"number\":-?[0-9.]+\\}\n"
                            "\\{\"line\":3,\"error\":\"expected 2 fields.*\n"));
}

TEST(OwnTexts, WhatIsWrongWithATableIsSaid) {
  const ScratchFolder scratch;
  scratch.write("t.tsv", "stars\treview\n5\tgood\nbad\n");
  const std::string made = "edgewise data tsv t.tsv --text review --label stars --out data";
  const Call broken = shell(scratch, made);
  EXPECT_EQ(broken.status, 1);
  EXPECT_EQ(broken.err, "edgewise: t.tsv:3: expected 2 fields, as the first line has; found 1 in 'bad'\n");
  EXPECT_FALSE(std::filesystem::exists(scratch / "data"));
  scratch.write("t.tsv", reviews(100));
  scratch.write("u.tsv", "stars\treview\n6\tgood\n");
  EXPECT_EQ(shell(scratch, made + " --test u.tsv").err,
            "edgewise: u.tsv:2: expected one of the 5 labels of the training rows, '1', '2', '3', '4', '5'; "
            "found '6'\n");
  EXPECT_THAT(shell(scratch, made + " --metric pearson").err, HasSubstr("--metric: expected one of classes"));
  ASSERT_EQ(shell(scratch, made).status, 0);
  EXPECT_THAT(shell(scratch, made).err, HasSubstr("replace it with --overwrite"));
  EXPECT_EQ(shell(scratch, made + " --overwrite").status, 0);
  EXPECT_THAT(shell(scratch,
                    "edgewise train " EDGEWISE_SOURCE_DIR "/recipes/texts/classify.toml --set data.path=none")
                  .err,
              AllOf(HasSubstr("Make it with: edgewise data tsv FILE"),
                    HasSubstr(scratch.file("none/examples.safetensors"))));
  const std::string other = write_tiny_recipe(scratch);
  ASSERT_EQ(shell(scratch, "edgewise train tiny.toml --run tiny --quiet").status, 0);
  EXPECT_THAT(shell(scratch, "edgewise predict tiny").err,
              HasSubstr("predict: expected a run on texts of your own (data.name = labelled_text)"));
  EXPECT_THAT(shell(scratch, "edgewise eval tiny --predictions p.jsonl").err,
              HasSubstr("expected a task with one answer an example"));
}

// What a recipe names lies where the recipe lies; what --set names, where the program is called.
TEST(Paths, OfARecipeStartAtItsFolder) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "recipes");
  std::filesystem::create_directory(scratch / "called");
  scratch.write("recipes/text.txt", std::string(3000, 'a') + std::string(3000, 'b'));
  scratch.write("called/other.txt", std::string(3000, 'c') + std::string(3000, 'd'));
  scratch.write("recipes/lm.toml", R"([data]
name = "characters"
path = "text.txt"
length = 16
[model]
layers = 1
dim = 8
heads = 1
hidden = 8
[train]
steps = 1
batch = 4
threads = 1
)");
  const std::string in = "cd called && edgewise ";
  const Call there = shell(scratch, in + "train ../recipes/lm.toml --run here");
  ASSERT_EQ(there.status, 0) << there.err;
  EXPECT_THAT(there.err, HasSubstr("text.txt, 2 different characters"));
  EXPECT_THAT(scratch.read("called/here/config.toml"),
              HasSubstr("path = \"" + scratch.file("recipes/text.txt") + "\""));
  // From anywhere the run finds its data again.
  EXPECT_EQ(shell(scratch, "edgewise eval called/here").status, 0);
  EXPECT_THAT(shell(scratch, in + "train ../recipes/lm.toml --run set --set data.path=other.txt").err,
              HasSubstr("other.txt, 2 different characters"));
  EXPECT_THAT(scratch.read("called/set/config.toml"),
              HasSubstr("path = \"" + scratch.file("called/other.txt") + "\""));
  // A run of a former version has a path that starts where the program is called.
  std::string config = scratch.read("called/set/config.toml");
  config.replace(config.find(scratch.file("called/other.txt")), scratch.file("called/other.txt").size(),
                 "other.txt");
  scratch.write("called/set/config.toml", config);
  EXPECT_EQ(shell(scratch, in + "eval set").status, 0);
}

}  // namespace
}  // namespace edgewise::cli
