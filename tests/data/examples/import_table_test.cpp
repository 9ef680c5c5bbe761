// From tables to token examples: classes, numbers, pairs, what is held out, and what is refused.
#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/examples/import_table.h>

#include <algorithm>
#include <map>

#include "data/examples/examples_kit.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;
using testing::ElementsAre;
using testing::HasSubstr;

TableImportOptions options_for(const std::string& file) {
  TableImportOptions options;
  options.train.file = file;
  options.tokenizer = std::make_shared<BytesTokenizer>();
  return options;
}

// `count` rows of every label.
std::string table(const std::vector<std::string>& labels, int count) {
  std::string text = "text\tlabel\n";
  for (int n = 0; n < count; ++n)
    for (const std::string& label : labels)
      text += "about " + label + " " + std::to_string(n) + "\t" + label + "\n";
  return text;
}

TEST(ImportTable, EqualPartsOfEveryClassAreHeldOut) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("t.tsv", table({"b", "a", "c", "e", "d"}, 20));
  const ImportedTable made = import_table(options_for(file));
  EXPECT_THAT(made.reader.options().classes, ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_EQ(made.examples.part(Split::kTrain).size(), 80);
  for (const Split split : {Split::kValidation, Split::kTest}) {
    std::map<double, int> counts;
    for (const double answer : made.examples.part(split).answers) ++counts[answer];
    for (const auto& [answer, count] : counts) EXPECT_EQ(count, 2) << answer;
    EXPECT_EQ(counts.size(), 5u);
  }
  EXPECT_EQ(made.seen, 0);
  // All rows are there, once.
  std::vector<int32_t> lines;
  for (const auto& part : made.examples.parts)
    lines.insert(lines.end(), part.lines.begin(), part.lines.end());
  std::ranges::sort(lines);
  EXPECT_EQ(lines.size(), 100u);
  EXPECT_EQ(lines.front(), 2);
  EXPECT_EQ(std::ranges::adjacent_find(lines), lines.end());
  // The seed decides which.
  TableImportOptions other = options_for(file);
  EXPECT_EQ(import_table(other).examples.part(Split::kTest).lines, made.examples.part(Split::kTest).lines);
  other.seed = 1;
  EXPECT_NE(import_table(other).examples.part(Split::kTest).lines, made.examples.part(Split::kTest).lines);
}

TEST(ImportTable, FilesOfTheirOwnAreTakenAsTheyAre) {
  const ScratchFolder scratch;
  TableImportOptions options = options_for(scratch.write("t.tsv", "text\tlabel\na\t10\nb\t9\nc\t-1\n"));
  options.validation = {{.file = scratch.write("v.tsv", "text\tlabel\na\t9\n")}};
  options.test = {{.file = scratch.write("u.jsonl", "{\"say\": \"zz\", \"is\": -1}\n"),
                   .form = TableForm::kJsonLines,
                   .text = "say",
                   .label = "is"}};
  const ImportedTable made = import_table(options);
  EXPECT_THAT(made.reader.options().classes, ElementsAre("-1", "9", "10")) << "in the order of numbers";
  EXPECT_THAT(made.examples.part(Split::kTrain).answers, ElementsAre(2, 1, 0));
  EXPECT_THAT(made.examples.part(Split::kValidation).answers, ElementsAre(1));
  EXPECT_THAT(made.examples.part(Split::kTest).answers, ElementsAre(0));
  EXPECT_THAT(made.examples.part(Split::kTest).tokens, ElementsAre('z' + 1, 'z' + 1));
  EXPECT_EQ(made.seen, 1);
  EXPECT_EQ(made.examples.part(Split::kTrain).bytes, 3);
}

TEST(ImportTable, NumbersAreStandardisedByTrain) {
  const ScratchFolder scratch;
  TableImportOptions options = options_for(scratch.write("t.tsv", "text\tother\tlabel\na\tx\t1\nb\ty\t5\n"));
  options.train.pair = "other";
  options.answer = AnswerKind::kNumber;
  options.validation = {options.train};
  options.test = {options.train};
  const ImportedTable made = import_table(options);
  EXPECT_EQ(made.reader.options().mean, 3);
  EXPECT_EQ(made.reader.options().scale, 2);
  EXPECT_EQ(made.reader.options().metric, "pearson");
  EXPECT_THAT(made.examples.part(Split::kTrain).answers, ElementsAre(1, 5)) << "kept as they were given";
  EXPECT_THAT(made.examples.part(Split::kTrain).lengths, ElementsAre(3, 3));
}

TEST(ImportTable, ATokeniserIsLearnedFromTheTrainingTexts) {
  const ScratchFolder scratch;
  TableImportOptions options = options_for(scratch.write("t.tsv", table({"low", "lower"}, 20)));
  options.tokenizer = nullptr;
  options.vocabulary = 270;
  const ImportedTable made = import_table(options);
  EXPECT_EQ(made.reader.tokenizer().kind(), "byte-bpe");
  EXPECT_LE(made.reader.vocabulary(), 270);
  EXPECT_GT(made.reader.vocabulary(), 261);
  EXPECT_EQ(made.reader.options().max_length % 16, 0);
  EXPECT_LT(made.reader.options().max_length, 64) << "of the longest, not of the limit";
}

TEST(ImportTable, LongTextsAreCutAndCounted) {
  const ScratchFolder scratch;
  TableImportOptions options =
      options_for(scratch.write("t.tsv", "text\tlabel\n" + std::string(1000, 'x') + "\t1\ny\t2\n"));
  options.validation = options.test = {{.file = scratch.write("v.tsv", "text\tlabel\ny\t2\n")}};
  options.max_length = 100;
  const ImportedTable made = import_table(options);
  EXPECT_THAT(made.examples.part(Split::kTrain).lengths, ElementsAre(100, 1));
  EXPECT_THAT(made.cut, ElementsAre(1, 0, 0));
  EXPECT_EQ(made.reader.options().max_length, 100);
}

TEST(ImportTable, WhatIsWrongIsSaidWithFileAndLine) {
  const ScratchFolder scratch;
  const auto says = [&](const std::string& train, const std::string& test = "", bool numbers = false) {
    TableImportOptions options = options_for(scratch.write("t.tsv", train));
    if (!test.empty()) options.test = {{.file = scratch.write("u.tsv", test)}};
    if (numbers) options.answer = AnswerKind::kNumber;
    return complaint([&] { import_table(options); });
  };
  const std::string fine = table({"no", "yes"}, 10), header = "text\tlabel\n";
  EXPECT_EQ(says(fine, header + "x\tno\nx\tmaybe\n"),
            scratch.file("u.tsv") +
                ":3: expected one of the 2 labels of the training rows, 'no', 'yes'; found 'maybe'");
  EXPECT_EQ(says(header + "\tno\n"), scratch.file("t.tsv") + ":2: expected a text in 'text'; it is empty");
  EXPECT_EQ(says(header + "x\t\n"), scratch.file("t.tsv") + ":2: expected a label in 'label'; it is empty");
  EXPECT_EQ(says(header + "x\tlong\n", "", true),
            scratch.file("t.tsv") + ":2: expected a finite number as label; found 'long'");
  EXPECT_THAT(says(header + "x\tinf\n", "", true), HasSubstr("expected a finite number"));
  std::string equal = header;
  for (int n = 0; n < 20; ++n) equal += "x\t1\n";
  EXPECT_THAT(says(equal, "", true), HasSubstr("expected numbers that differ"));
  EXPECT_THAT(says(header), HasSubstr("t.tsv: expected rows; found none"));
  EXPECT_THAT(says(header + "x\tno\ny\tyes\n"), HasSubstr("t.tsv: expected enough rows to hold out 10 %"));
  EXPECT_THAT(says(table({"only"}, 20)), HasSubstr("at least two classes; found 1, 'only'"));
  std::string all_different = header;
  for (int n = 0; n < 30; ++n) all_different += "x\t" + std::to_string(n) + ".5\n";
  EXPECT_THAT(says(all_different), HasSubstr("every one of the 30 rows has another"));
}

TEST(ImportTable, FaultyRowsCanBeLeftOut) {
  const ScratchFolder scratch;
  TableImportOptions options =
      options_for(scratch.write("t.tsv", table({"no", "yes"}, 20) + "broken\nx\t\n" + "\xFF\tno\n"));
  options.test = {{.file = scratch.write("u.tsv", "text\tlabel\nx\tmaybe\nx\tyes\n")}};
  options.skip_faulty = true;
  const ImportedTable made = import_table(options);
  EXPECT_EQ(made.faults.count, 4);
  EXPECT_EQ(made.faults.first,
            scratch.file("t.tsv") + ":42: expected 2 fields, as the first line has; found 1 in 'broken'");
  EXPECT_EQ(made.examples.part(Split::kTest).size(), 1);
}

}  // namespace
}  // namespace edgewise::data
