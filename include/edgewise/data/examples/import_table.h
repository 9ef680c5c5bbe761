// Tables of texts with a label, or a number, each: from files to token examples.
//
// Without files of their own, validation and test are held out of the training rows: equal parts of every
// class, or of the whole range of numbers, chosen by the seed.
#pragma once

#include <edgewise/data/examples/table_rows.h>
#include <edgewise/data/examples/token_examples.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace edgewise::data {

// The rows of one split.
struct TableSource {
  std::filesystem::path file;
  TableForm form = TableForm::kTsv;
  bool has_header = true;
  std::string text = "text", pair = {}, label = "label";  // columns; pair: empty for single texts
};

struct TableImportOptions {
  TableSource train;
  std::vector<TableSource> validation, test;  // one each, or none: held out of train
  double hold_out = 0.1;                      // share of each that is held out
  uint64_t seed = 0;
  AnswerKind answer = AnswerKind::kClass;
  // In this order; empty: those of the training rows, in the order of numbers where all are such, else of
  // bytes.
  std::vector<std::string> classes;
  std::string metric;                          // empty: accuracy, or pearson of numbers
  int64_t max_length = 512;                    // tokens; the longest example may have fewer
  std::shared_ptr<const Tokenizer> tokenizer;  // null: byte-level BPE learned from the training texts
  int64_t vocabulary = 8000;                   // of that
  bool any_bytes = false, skip_faulty = false;
  std::function<void(const std::string& doing, int64_t rows)> progress = nullptr;
};

struct ImportedTable {
  TextReader reader;
  TokenExamples examples;
  TableFaults faults;            // of all files
  std::array<int64_t, 3> cut{};  // examples of each split that were longer than max_length
  int64_t seen = 0;              // texts of validation and test that are in train too, letter by letter
};

// Everything wrong with a row, a label that no training row has among it, names the file and the line.
ImportedTable import_table(const TableImportOptions& options);

}  // namespace edgewise::data
