// Tables as people write them, and everything that can be wrong with one: told with file and line.
#include <edgewise/data/examples/table_rows.h>

#include "data/examples/examples_kit.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> rows_of(const std::string& file, const TableOptions& options) {
  std::vector<std::string> rows;
  each_row(file, options, [&](const TableRow& row) {
    std::string text = std::to_string(row.line);
    for (const std::string& value : row.values) text += "|" + value;
    rows.push_back(text);
  });
  return rows;
}

TEST(TableRows, ColumnsAreFoundByNameOrNumber) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("t.tsv", "stars\ttext\tid\n5\tgood one\t1\n1\tbad\t2\n");
  EXPECT_THAT(rows_of(file, {.columns = {"text", "stars"}}), ElementsAre("2|good one|5", "3|bad|1"));
  EXPECT_THAT(rows_of(file, {.columns = {"2", "id"}}), ElementsAre("2|good one|1", "3|bad|2"));
  EXPECT_THAT(rows_of(file, {.columns = {"3"}, .has_header = false}), ElementsAre("1|id", "2|1", "3|2"));
  // A column that is called 2 is meant before the second one.
  const std::string numbered = scratch.write("n.tsv", "2\tx\na\tb\n");
  EXPECT_THAT(rows_of(numbered, {.columns = {"2"}}), ElementsAre("2|a"));
}

TEST(TableRows, WhatEditorsAddIsNoContent) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("t.tsv", "\xEF\xBB\xBFtext\tlabel\r\nsch\xC3\xB6n\t1\r\n\r\n\n");
  EXPECT_THAT(rows_of(file, {.columns = {"text", "label"}}), ElementsAre("2|sch\xC3\xB6n|1"));
  const std::string without_end = scratch.write("u.tsv", "text\tlabel\na\t1");
  EXPECT_THAT(rows_of(without_end, {.columns = {"label"}}), ElementsAre("2|1"));
}

TEST(TableRows, QuotesAndBackslashesAreText) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("t.tsv", "text\tlabel\n\"a \\t b\t1\n");
  EXPECT_THAT(rows_of(file, {.columns = {"text"}}), ElementsAre("2|\"a \\t b"));
}

TEST(TableRows, JsonLinesHaveTextsNumbersAndTruths) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("t.jsonl", R"({"t": "a\tb\n\u00e4", "l": 3, "more": [1]}
{"l": true, "t": "x"}
{"l": 1.5, "t": ""}
)");
  const TableOptions options{.form = TableForm::kJsonLines, .columns = {"t", "l"}};
  EXPECT_THAT(rows_of(file, options), ElementsAre("1|a\tb\n\xC3\xA4|3", "2|x|true", "3||1.5"));
  const auto says = [&](const std::string& line) {
    const std::string bad = scratch.write("bad.jsonl", "{\"t\": \"x\", \"l\": 1}\n" + line + "\n");
    return complaint([&] { rows_of(bad, options); });
  };
  EXPECT_THAT(says("{\"t\": \"x\"}"), HasSubstr("bad.jsonl:2: expected the key 'l'; the object has 't'"));
  EXPECT_THAT(says("{\"t\": [1], \"l\": 1}"), HasSubstr("expected a text or a number as 't'; found '[1]'"));
  EXPECT_THAT(says("[1, 2]"), HasSubstr("bad.jsonl:2: expected an object of JSON; found '[1, 2]'"));
  EXPECT_THAT(says("{\"t\": \"x\", "), HasSubstr("expected an object of JSON"));
}

TEST(TableRows, WhatIsWrongIsSaidWithFileAndLine) {
  const ScratchFolder scratch;
  const auto says = [&](const std::string& text, TableOptions options = {.columns = {"text", "label"}}) {
    const std::string file = scratch.write("t.tsv", text);
    const std::string message = complaint([&] { rows_of(file, options); });
    EXPECT_THAT(message, testing::StartsWith(file));
    return message.substr(file.size());
  };
  EXPECT_EQ(says("text\tlabel\na\t1\nb\n"), ":3: expected 2 fields, as the first line has; found 1 in 'b'");
  EXPECT_EQ(says("text\tlabel\na\t1\tx\n"),
            ":2: expected 2 fields, as the first line has; found 3 in 'a?1?x'");
  EXPECT_EQ(says("text\tlabel\na\t1\n\nb\t2\n"), ":3: expected a row; found an empty line");
  EXPECT_EQ(
      says("text\tlabel\nna\xEFve\t1\n"),
      ":2: expected text in UTF-8; found the byte 0xEF at 3 of the line, which belongs to no character");
  EXPECT_EQ(says("text\tstars\n"), ":1: expected a column 'label'; the first line names 'text', 'stars'");
  EXPECT_EQ(says("text\ttext\tlabel\n"),
            ":1: expected one column 'text'; found several. Choose it by its number");
  EXPECT_EQ(says("a\tb\n", {.columns = {"3"}, .has_header = false}),
            ":1: expected the column '3' as a number from 1 to 2, as no line names the columns");
  EXPECT_EQ(says(""), ": expected a first line that names the columns; the file is empty");
  EXPECT_THAT(complaint([] { rows_of("/nowhere.tsv", {}); }),
              HasSubstr("expected a text file at /nowhere.tsv"));
}

TEST(TableRows, ALineOfTenMegabytesIsAFaultThatNothingSkips) {
  const ScratchFolder scratch;
  const std::string file =
      scratch.write("t.tsv", "text\tlabel\na\t1\n" + std::string(10 << 20, 'x') + "\t1\nb\t2\n");
  for (const bool skip : {false, true}) {
    std::vector<std::string> read;
    const TableOptions options{.columns = {"text"}, .skip_faulty = skip};
    EXPECT_EQ(
        complaint(
            [&] { each_row(file, options, [&](const TableRow& row) { read.push_back(row.values[0]); }); }),
        file + ":3: expected lines of at most 8388608 bytes; this one is longer. Are its line ends lost?");
    EXPECT_THAT(read, ElementsAre("a"));
  }
  // Shorter ones are lines as any other.
  const std::string long_line = scratch.write("l.tsv", "text\tlabel\n" + std::string(7 << 20, 'x') + "\t1\n");
  EXPECT_EQ(rows_of(long_line, {.columns = {"label"}}), std::vector<std::string>{"2|1"});
}

TEST(TableRows, FaultsCanBeCountedInstead) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("t.tsv", "text\tlabel\na\t1\nb\n\nc\xFF\t1\nd\t9\ne\t1\n");
  std::vector<std::string> read;
  const TableFaults faults =
      each_row(file, {.columns = {"text", "label"}, .skip_faulty = true}, [&](const TableRow& row) {
        if (row.values[1] == "9") throw std::invalid_argument("no nines");
        read.push_back(row.values[0]);
      });
  EXPECT_THAT(read, ElementsAre("a", "e"));
  EXPECT_EQ(faults.count, 4);
  EXPECT_EQ(faults.first, file + ":3: expected 2 fields, as the first line has; found 1 in 'b'");
  EXPECT_THAT(
      rows_of(scratch.write("b.tsv", "text\tlabel\nc\xFF\t1\n"), {.columns = {"text"}, .any_bytes = true}),
      ElementsAre("2|c\xFF"));
}

}  // namespace
}  // namespace edgewise::data
