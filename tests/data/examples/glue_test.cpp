// GLUE's nine tasks from small files in the official layout.
#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/examples/glue.h>

#include <map>

#include "data/examples/examples_kit.h"
#include "kit/scratch_folder.h"

namespace edgewise::data {
namespace {

using kit::ScratchFolder;
using testing::ElementsAre;
using testing::HasSubstr;

// A header, and a row without its end.
struct Layout {
  std::string header, row;
  std::vector<double> answers;             // of the two rows of dev
  std::vector<std::string> labels;         // as dev has them
  std::string text = "A \"b", pair = "C";  // in the row as TEXT and PAIR
};

const std::map<std::string, Layout>& layouts() {
  static const std::map<std::string, Layout> all = {
      {"cola", {"", "gj04\tLABEL\t\tTEXT", {1, 0}, {"1", "0"}, "A \"b", ""}},
      {"sst2", {"sentence\tlabel", "TEXT\tLABEL", {1, 0}, {"1", "0"}, "A \"b", ""}},
      {"mrpc",
       {"\xEF\xBB\xBFQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "LABEL\t1\t2\tTEXT\tPAIR\r",
        {1, 0},
        {"1", "0"}}},
      {"qqp",
       {"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "1\t2\t3\tTEXT\tPAIR\tLABEL",
        {0, 1},
        {"0", "1"}}},
      {"stsb",
       {"index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "0\tg\tf\t2012\t1\tnone\tnone\tTEXT\tPAIR\tLABEL",
        {5, 0.2},
        {"5.000", "0.200"}}},
      {"mnli",
       {"index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
        "0\t1\t2\tg\tx\ty\tx\ty\tTEXT\tPAIR\tneutral\tLABEL",
        {2, 0},
        {"contradiction", "entailment"}}},
      {"qnli",
       {"index\tquestion\tsentence\tlabel",
        "0\tTEXT\tPAIR\tLABEL",
        {1, 0},
        {"not_entailment", "entailment"}}},
      {"rte",
       {"index\tsentence1\tsentence2\tlabel",
        "0\tTEXT\tPAIR\tLABEL",
        {0, 1},
        {"entailment", "not_entailment"}}},
      {"wnli", {"index\tsentence1\tsentence2\tlabel", "0\tTEXT\tPAIR\tLABEL", {1, 0}, {"1", "0"}}}};
  return all;
}

std::string rows(const Layout& layout, const std::vector<std::string>& labels) {
  std::string text = layout.header.empty() ? "" : layout.header + "\n";
  for (const std::string& label : labels) {
    std::string row = layout.row;
    for (const auto& [mark, value] :
         std::map<std::string, std::string>{{"TEXT", layout.text}, {"PAIR", layout.pair}, {"LABEL", label}})
      if (const size_t at = row.find(mark); at != std::string::npos) row.replace(at, mark.size(), value);
    text += row + "\n";
  }
  return text;
}

// Thirty rows to train on: every label of dev, and of MNLI the third.
std::vector<std::string> training_labels(const std::string& task, const Layout& layout) {
  std::vector<std::string> labels;
  for (int n = 0; n < 30; ++n)
    labels.push_back(task == "mnli" && n % 3 == 2 ? "neutral" : layout.labels[n % 2]);
  return labels;
}

TEST(Glue, EveryTaskIsReadAsItIsDistributed) {
  for (const GlueTask& task : glue_tasks()) {
    SCOPED_TRACE(task.name);
    const bool mismatched = task.name == "mnli_mismatched";
    const Layout& layout = layouts().at(mismatched ? "mnli" : task.name);
    for (const std::string& place : {task.folder + "/", std::string()}) {  // GLUE's folder, or the task's
      const ScratchFolder scratch;
      if (!place.empty()) std::filesystem::create_directory(scratch / task.folder);
      scratch.write(place + "train.tsv",
                    rows(layout, training_labels(mismatched ? "mnli" : task.name, layout)));
      scratch.write(place + task.dev, rows(layout, layout.labels));
      TableImportOptions options = glue_import(task, scratch.path(), /*choose_on_dev=*/false);
      options.tokenizer = std::make_shared<BytesTokenizer>();
      const ImportedTable made = import_table(options);
      const TokenExamples::Part& dev = made.examples.part(Split::kTest);
      EXPECT_EQ(dev.answers, layout.answers);
      EXPECT_EQ(made.examples.part(Split::kValidation).size(), 1) << "a twentieth of thirty";
      EXPECT_EQ(made.examples.part(Split::kTrain).size(), 29);
      EXPECT_EQ(made.reader.options().classes, task.classes);
      EXPECT_EQ(made.reader.options().metric, task.metric);
      EXPECT_EQ(made.reader.options().reads_pairs(), !layout.pair.empty());
      std::vector<int32_t> wanted;
      const TextReader& reader = made.reader;
      reader.read(layout.text,
                  layout.pair.empty() ? std::nullopt : std::optional<std::string_view>(layout.pair), wanted);
      EXPECT_EQ(std::vector<int32_t>(dev.tokens.begin(), dev.tokens.begin() + dev.lengths[0]), wanted);
    }
  }
  EXPECT_EQ(glue_tasks().size(), 10u) << "nine, MNLI tested twice";
}

TEST(Glue, DevMayChooseTheCheckpointToo) {
  const ScratchFolder scratch;
  const Layout& layout = layouts().at("rte");
  scratch.write("train.tsv", rows(layout, training_labels("rte", layout)));
  scratch.write("dev.tsv", rows(layout, layout.labels));
  TableImportOptions options = glue_import(glue_task("rte"), scratch.path(), /*choose_on_dev=*/true);
  options.tokenizer = std::make_shared<BytesTokenizer>();
  const ImportedTable made = import_table(options);
  EXPECT_EQ(made.examples.part(Split::kTrain).size(), 30);
  EXPECT_EQ(made.examples.part(Split::kValidation).answers, layout.answers);
}

TEST(Glue, WhatIsMissingIsSaid) {
  const ScratchFolder scratch;
  EXPECT_THAT(complaint([&] { glue_import(glue_task("cola"), scratch.path(), false); }),
              HasSubstr("data glue cola: expected train.tsv in " + scratch.file("CoLA") + " or "));
  EXPECT_THAT(complaint([] { glue_task("sst-2"); }), HasSubstr("expected one of cola, sst2, mrpc"));
  // The test files have no labels, and say so.
  const Layout& layout = layouts().at("rte");
  scratch.write("train.tsv", rows(layout, training_labels("rte", layout)));
  scratch.write("dev.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n");
  EXPECT_THAT(complaint([&] { import_table(glue_import(glue_task("rte"), scratch.path(), false)); }),
              HasSubstr("dev.tsv:1: expected a column 'label'; the first line names 'index', 'sentence1'"));
}

}  // namespace
}  // namespace edgewise::data
