// ListOps files: the exact official text form, round trips, and one test per way a file can be wrong.
#include <edgewise/data/listops_file.h>

#include <filesystem>

#include <gtest/gtest.h>
#include <system_error>

#include "data/expect_error.h"
#include "data/listops_tokens.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;

ListOpsExamples read_text(const std::string& text, const ListOpsReadOptions& options = {}) {
  const ScratchFolder folder;
  return read_listops(folder.write("basic_train.tsv", text), options);
}

std::vector<uint8_t> tokens_of(const ListOpsExamples& examples, int64_t index) {
  const auto tokens = examples.tokens(index);
  return {tokens.begin(), tokens.end()};
}

TEST(ListOpsFile, TheTextFormIsTheOfficialOne) {
  EXPECT_EQ(listops_text(listops("[MIN 2 9 4 X")), "( ( ( ( [MIN 2 ) 9 ) 4 ) ] )");
  EXPECT_EQ(listops_text(listops("[SM [MAX 1 2 X 3 X")), "( ( ( [SM ( ( ( [MAX 1 ) 2 ) ] ) ) 3 ) ] )");
  EXPECT_EQ(listops_text(listops("[MED 0 [SM 5 5 X X")), "( ( ( [MED 0 ) ( ( ( [SM 5 ) 5 ) ] ) ) ] )");
  EXPECT_EQ(listops_text(listops("8")), "8");
  EXPECT_ERROR(listops_text(listops("[MIN 1")), "found at token 3: 1 operators are never closed");
}

TEST(ListOpsFile, FilesAreByteForByteAsTheOfficialWriterMakesThem) {
  ListOpsExamples examples;
  examples.add(listops("[MIN 2 9 4 X"), 2);
  examples.add(listops("[MAX 2 9 X"), 9);
  const ScratchFolder folder;
  write_listops(folder.file("a.tsv"), examples);
  EXPECT_EQ(folder.read("a.tsv"),
            "Source\tTarget\r\n( ( ( ( [MIN 2 ) 9 ) 4 ) ] )\t2\r\n( ( ( [MAX 2 ) 9 ) ] )\t9\r\n");
  EXPECT_FALSE(std::filesystem::exists(folder.file(".a.tsv.tmp")));
}

TEST(ListOpsFile, WhatIsWrittenIsReadBack) {
  const ListOpsData data =
      generate_listops({.train_size = 60, .validation_size = 10, .test_size = 5, .seed = 3});
  const ScratchFolder folder;
  const std::string nested = folder.file("new/listops");
  write_listops(nested, data);
  for (const auto& [split, written] : {std::pair{Split::kTrain, &data.train},
                                       {Split::kValidation, &data.validation},
                                       {Split::kTest, &data.test}}) {
    const ListOpsExamples read = read_listops(listops_path(nested, split), {.verify = true});
    ASSERT_EQ(read.size(), written->size());
    for (int64_t i = 0; i < read.size(); ++i) {
      EXPECT_EQ(tokens_of(read, i), tokens_of(*written, i));
      EXPECT_EQ(read.label(i), written->label(i));
    }
  }
}

TEST(ListOpsFile, ReadsEitherLineEndingAndALastLineWithoutOne) {
  for (const std::string end : {"\r\n", "\n"}) {
    const auto examples = read_text("Source\tTarget" + end + "( ( ( [SM ( ( ( [MAX 1 ) 2 ) ] ) ) 3 ) ] )\t5" +
                                    end + "( ( ( [MED 0 ) 9 ) ] )\t4");
    ASSERT_EQ(examples.size(), 2);
    EXPECT_EQ(tokens_of(examples, 0), listops("[SM [MAX 1 2 X 3 X"));
    EXPECT_EQ(examples.label(0), 5);
    EXPECT_EQ(tokens_of(examples, 1), listops("[MED 0 9 X"));
  }
  EXPECT_EQ(read_text("Source\tTarget\n").size(), 0);
}

TEST(ListOpsFile, MalformedFilesAreErrorsThatNameThePlace) {
  const std::string head = "Source\tTarget\n( ( ( [MIN 2 ) 9 ) ] )\t2\n";
  EXPECT_ERROR(read_text(""), "basic_train.tsv:1:1: expected the header 'Source<TAB>Target'; found ''");
  EXPECT_ERROR(read_text("Source,Target\n"),
               ":1:1: expected the header 'Source<TAB>Target'; found 'Source,Target'");
  EXPECT_ERROR(read_text(head + "( ( ( [MIN 2 ) 9 ) ] ) 2\n"),
               ":3:25: expected an expression, a tab and a target");
  EXPECT_ERROR(read_text(head + "\n"),
               ":3:1: expected an expression, a tab and a target; found no tab in ''");
  EXPECT_ERROR(read_text(head + "( ( ( [AVG 2 ) 9 ) ] )\t2\n"),
               ":3:7: expected [MIN, [MAX, [MED, [SM, ], a digit or a parenthesis; found '[AVG'");
  EXPECT_ERROR(read_text(head + "( ( ( [MIN 12 ) 9 ) ] )\t2\n"), ":3:12: expected [MIN");
  EXPECT_ERROR(read_text(head + std::string("\0\1\2 4", 5) + "\t2\n"), "a parenthesis; found '?");
  EXPECT_ERROR(read_text(head + "( ( ( [MIN 2 ) 9 ) ] )\t10\n"),
               ":3:24: expected a target in 0..9; found '10'");
  EXPECT_ERROR(read_text(head + "( ( ( [MIN 2 ) 9 ) ] )\t\n"), ":3:24: expected a target in 0..9; found ''");
  EXPECT_ERROR(read_text(head + "( ( ( [MIN 2 ) 9 ) ] )\t2\t2\n"), "expected a target in 0..9");
  EXPECT_ERROR(read_text(head + "\t2\n"), ":3:1: expected an expression; found none before the tab");
  EXPECT_ERROR(read_text(head + "( ( [MIN 2 ) 9 )\t2\n"),
               ":3:17: expected a balanced expression; found: 1 operators");
  EXPECT_ERROR(read_text(head + "( ( ( [MIN 2 ) 9 ) ] ) ]\t2\n"), ":3:24: expected a balanced expression");
  EXPECT_ERROR(read_text(head + "( ( ( [MIN 2 ) 9 ) ]\t2\n"),
               ":3:21: expected balanced parentheses; found 1 never");
  EXPECT_ERROR(read_text(head + "[MIN 2 ) 9 ]\t2\n"),
               ":3:8: expected balanced parentheses; found ')' without '('");
}

TEST(ListOpsFile, AnExpressionThatIsTooLongIsAnErrorRatherThanCut) {
  const std::string text = "Source\tTarget\n( ( ( [MIN 2 ) 9 ) ] )\t2\n";
  EXPECT_EQ(read_text(text, {.max_length = 4}).size(), 1);
  EXPECT_ERROR(read_text(text, {.max_length = 3}),
               ":2:1: expected at most 3 tokens; found 4; raise max_length");
}

TEST(ListOpsFile, VerifyComparesTargetsWithValues) {
  const std::string text = "Source\tTarget\n( ( ( [MIN 2 ) 9 ) ] )\t3\n";
  EXPECT_EQ(read_text(text).label(0), 3);
  EXPECT_ERROR(read_text(text, {.verify = true}),
               ":2:24: expected the expression's value 2 as target; found 3");
}

TEST(ListOpsFile, FilesThatCannotBeOpenedAreExplained) {
  EXPECT_ERROR(read_listops("/nowhere/basic_val.tsv"),
               "could not open '/nowhere/basic_val.tsv': No such file");
  EXPECT_ERROR(read_listops("/"), "could not read '/': Is a directory");
  try {
    write_listops("/nowhere/basic_val.tsv", ListOpsExamples());
    FAIL() << "no error";
  } catch (const std::system_error& error) {  // as every file that io writes
    EXPECT_THAT(error.what(), testing::HasSubstr("cannot write '/nowhere/basic_val.tsv'"));
    EXPECT_THAT(error.what(), testing::HasSubstr("No such file"));
  }
}

TEST(ListOpsFile, AFolderIsPreparedWithoutLeavingFiles) {
  const ScratchFolder folder;
  prepare_listops_folder(folder.file("a/b"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "a/b"));
  EXPECT_ERROR(prepare_listops_folder(folder.write("file", "x") + "/b"), "/file/b'");
  EXPECT_THROW(prepare_listops_folder("/proc"), std::system_error);  // refuses new files even to root
}

}  // namespace
}  // namespace edgewise::data
