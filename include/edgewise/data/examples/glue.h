// The nine tasks of GLUE, in the files that they are distributed as: which columns hold what, the labels in
// their usual order, the figure that each is judged by.
//
// GLUE keeps the labels of its test files to itself, so dev.tsv is the test split here. Validation is held
// out of train.tsv; the published habit, to choose the checkpoint on the same dev.tsv, is an option.
#pragma once

#include <edgewise/data/examples/import_table.h>

#include <filesystem>
#include <string>
#include <vector>

namespace edgewise::data {

struct GlueTask {
  std::string name;    // "mnli"
  std::string folder;  // "MNLI"
  std::string what;    // one line
  std::string dev = "dev.tsv";
  bool has_header = true;
  std::string text = {}, pair = {}, label = {};  // columns; pair: empty for single sentences
  std::vector<std::string> classes = {};         // empty: numbers
  std::string metric = "accuracy";
};

// cola, sst2, mrpc, qqp, stsb, mnli, mnli_mismatched, qnli, rte and wnli.
const std::vector<GlueTask>& glue_tasks();
const GlueTask& glue_task(const std::string& name);  // throws, naming all, when there is none

// `folder` is GLUE's, or the task's own. Throws, naming the files, where one is missing.
TableImportOptions glue_import(const GlueTask& task, const std::filesystem::path& folder, bool choose_on_dev);

}  // namespace edgewise::data
