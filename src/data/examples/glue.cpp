#include <edgewise/data/examples/glue.h>

#include <algorithm>

#include "data/readers/compressed.h"
#include "data/text/failure.h"

namespace edgewise::data {
namespace {

constexpr double kHeldOut = 0.05;  // of train, to choose the checkpoint by

std::filesystem::path glue_file(const GlueTask& task, const std::filesystem::path& folder,
                                const std::string& name) {
  for (const std::filesystem::path& place : {folder / task.folder / name, folder / name})
    if (find_plain_or_xz(place)) return place;
  fail("data glue ", task.name, ": expected ", name, " in ", (folder / task.folder).string(), " or ",
       folder.string(), "; found it in neither");
}

}  // namespace

const std::vector<GlueTask>& glue_tasks() {
  const std::vector<std::string> entails = {"entailment", "not_entailment"}, binary = {"0", "1"};
  static const std::vector<GlueTask> tasks = {
      {.name = "cola",
       .folder = "CoLA",
       .what = "is a sentence grammatical?",
       .has_header = false,
       .text = "4",
       .label = "2",
       .classes = binary,
       .metric = "matthews"},
      {.name = "sst2",
       .folder = "SST-2",
       .what = "is a sentence of a review good or bad?",
       .text = "sentence",
       .label = "label",
       .classes = binary},
      {.name = "mrpc",
       .folder = "MRPC",
       .what = "do two sentences of the news say the same?",
       .text = "#1 String",
       .pair = "#2 String",
       .label = "Quality",
       .classes = binary,
       .metric = "f1"},
      {.name = "qqp",
       .folder = "QQP",
       .what = "do two questions ask the same?",
       .text = "question1",
       .pair = "question2",
       .label = "is_duplicate",
       .classes = binary,
       .metric = "f1"},
      {.name = "stsb",
       .folder = "STS-B",
       .what = "how alike are two sentences, from 0 to 5?",
       .text = "sentence1",
       .pair = "sentence2",
       .label = "score",
       .metric = "pearson"},
      {.name = "mnli",
       .folder = "MNLI",
       .what = "does one sentence follow from another, or contradict it?",
       .dev = "dev_matched.tsv",
       .text = "sentence1",
       .pair = "sentence2",
       .label = "gold_label",
       .classes = {"entailment", "neutral", "contradiction"}},
      {.name = "mnli_mismatched",
       .folder = "MNLI",
       .what = "the same, tested on other kinds of text",
       .dev = "dev_mismatched.tsv",
       .text = "sentence1",
       .pair = "sentence2",
       .label = "gold_label",
       .classes = {"entailment", "neutral", "contradiction"}},
      {.name = "qnli",
       .folder = "QNLI",
       .what = "does a sentence answer a question?",
       .text = "question",
       .pair = "sentence",
       .label = "label",
       .classes = entails},
      {.name = "rte",
       .folder = "RTE",
       .what = "does one sentence follow from another?",
       .text = "sentence1",
       .pair = "sentence2",
       .label = "label",
       .classes = entails},
      {.name = "wnli",
       .folder = "WNLI",
       .what = "what does a pronoun stand for?",
       .text = "sentence1",
       .pair = "sentence2",
       .label = "label",
       .classes = binary}};
  return tasks;
}

const GlueTask& glue_task(const std::string& name) {
  const auto found = std::ranges::find(glue_tasks(), name, &GlueTask::name);
  if (found != glue_tasks().end()) return *found;
  std::string known;
  for (const GlueTask& task : glue_tasks()) known += (known.empty() ? "" : ", ") + task.name;
  fail("data glue: expected one of ", known, "; got ", in_quotes(name));
}

TableImportOptions glue_import(const GlueTask& task, const std::filesystem::path& folder,
                               bool choose_on_dev) {
  TableImportOptions options;
  options.train = {.file = glue_file(task, folder, "train.tsv"),
                   .has_header = task.has_header,
                   .text = task.text,
                   .pair = task.pair,
                   .label = task.label};
  TableSource dev = options.train;
  dev.file = glue_file(task, folder, task.dev);
  options.test = {dev};
  if (choose_on_dev) options.validation = {dev};
  options.hold_out = kHeldOut;
  options.answer = task.classes.empty() ? AnswerKind::kNumber : AnswerKind::kClass;
  options.classes = task.classes;
  options.metric = task.metric;
  return options;
}

}  // namespace edgewise::data
