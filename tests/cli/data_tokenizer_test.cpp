// data tokenizer and data tokenize: a tokeniser is trained, used and refused as a user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/call.h"

namespace edgewise::cli {
namespace {

using kit::ScratchFolder;
using testing::HasSubstr;

TEST(DataTokenizer, TrainsOnFilesAndShowsLines) {
  const ScratchFolder scratch;
  const std::string one = scratch.write("one.txt", "low low low low low\nlower lower\n");
  const std::string two =
      scratch.write("two.txt", "newest newest newest newest newest newest\nwidest widest widest");
  const Call made = call(scratch, {"data", "tokenizer", "--from", one, two, "--vocabulary", "273", "--out",
                                   scratch.file("new/bpe")});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("byte-bpe, 273 ids"));
  EXPECT_THAT(made.err, HasSubstr("distinct words"));
  EXPECT_THAT(scratch.read("new/bpe/merges.txt"), testing::StartsWith("#version: 0.2\ne s\nes t\nl o\n"));
  const Call shown = call(scratch, {"data", "tokenize", scratch.file("new/bpe"), "--text", "lowest newest",
                                    "--from", one, "--lines", "1"});
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("special: begin 0, pad 1, end 2, unknown 3, mask 4"));
  EXPECT_THAT(shown.out, HasSubstr("lowest newest\n  pieces: low est \u0120newest\n  ids: 264 262 269\n"));
  EXPECT_THAT(shown.out, testing::Not(HasSubstr("lower lower")));  // counted, not shown
  EXPECT_THAT(shown.out, testing::ContainsRegex("\n *3 +43 "));    // lines and bytes
}

TEST(DataTokenizer, EveryKindCanBeMade) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("text.txt", "low low lower lower\n");
  const std::vector<std::pair<std::string, std::string>> kinds = {{"subword-bpe", "subword-bpe, 7 ids"},
                                                                  {"characters", "characters, 7 ids"},
                                                                  {"bytes", "bytes, 257 ids"}};
  for (const auto& [kind, says] : kinds) {
    const Call made = call(scratch, {"data", "tokenizer", "--kind", kind, "--from", text, "--vocabulary", "4",
                                     "--out", scratch.file(kind)});
    EXPECT_EQ(made.status, 0) << made.err;
    EXPECT_THAT(made.out, HasSubstr(says));
  }
  const Call shown = call(scratch, {"data", "tokenize", scratch.file("subword-bpe"), "--text", "low slow"});
  EXPECT_THAT(shown.out, HasSubstr("  pieces: lo@@ w <unk> lo@@ w\n"));
}

TEST(DataTokenizer, WhatCannotBeIsRefused) {
  const ScratchFolder scratch;
  const std::string text = scratch.write("text.txt", "low low\n"), out = scratch.file("out");
  EXPECT_THAT(call(scratch, {"data", "tokenizer", "--out", out}).err,
              HasSubstr("expected --from FILE... to learn from"));
  EXPECT_THAT(call(scratch, {"data", "tokenizer", "--from", scratch.file("none"), "--out", out}).err,
              HasSubstr("expected a text file at"));
  EXPECT_THAT(call(scratch, {"data", "tokenizer", "--from", scratch.path(), "--out", out}).err,
              HasSubstr("is a folder"));
  EXPECT_EQ(call(scratch, {"data", "tokenizer", "--from", text, "--kind", "bpe", "--out", out}).status, 2);
  EXPECT_THAT(call(scratch, {"data", "tokenizer", "--from", text, "--vocabulary", "9", "--out", out}).err,
              HasSubstr("from 261"));
  ASSERT_EQ(call(scratch, {"data", "tokenizer", "--from", text, "--out", out}).status, 0);
  EXPECT_THAT(call(scratch, {"data", "tokenizer", "--from", text, "--out", out}).err,
              HasSubstr("replace it with --overwrite"));
  EXPECT_EQ(call(scratch, {"data", "tokenizer", "--from", text, "--out", out, "--overwrite"}).status, 0);
  scratch.write("out/merges.txt", "#version: 0.2\nx\n");
  const Call damaged = call(scratch, {"data", "tokenize", out, "--text", "low"});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.err, HasSubstr("merges.txt:2: expected two symbols"));
  EXPECT_EQ(std::count(damaged.err.begin(), damaged.err.end(), '\n'), 1);
}

}  // namespace
}  // namespace edgewise::cli
