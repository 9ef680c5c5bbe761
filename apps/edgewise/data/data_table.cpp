#include "data/data_table.h"

#include <c10/util/Exception.h>
#include <edgewise/data/byte_tokenizers.h>
#include <edgewise/data/examples/import_table.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/tasks/metric.h>
#include <edgewise/train/progress.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "data/data_examples.h"
#include "data/data_lra.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct TableArguments {
  data::TableSource columns;  // without a file
  std::string file, validation, test, out, tokenizer;
  bool no_header = false, numbers = false, overwrite = false;
  data::TableImportOptions options;
};

data::TableSource source_of(const TableArguments& arguments, const std::string& file) {
  data::TableSource source = arguments.columns;
  source.file = file;
  source.has_header = !arguments.no_header;
  return source;
}

// How often each class occurs in a split, the most frequent first: "4 stars 31 %, 5 stars 22 %, ...".
std::string shares_of_classes(const std::vector<double>& answers, const std::vector<std::string>& classes) {
  std::vector<std::pair<int64_t, size_t>> counts(classes.size());
  for (size_t n = 0; n < counts.size(); ++n) counts[n].second = n;
  for (const double answer : answers) --counts[static_cast<size_t>(answer)].first;
  std::ranges::sort(counts);
  std::string text;
  constexpr size_t kMost = 6;
  for (size_t n = 0; n < std::min(kMost, counts.size()); ++n)
    text += (n ? ", " : "") + classes[counts[n].second] + " " +
            percent(static_cast<double>(-counts[n].first) / static_cast<double>(answers.size()), 1);
  return text + (counts.size() > kMost ? ", ..." : "");
}

int run(const TableArguments& arguments) {
  check_overwrites(arguments.columns.form == data::TableForm::kTsv ? "tsv" : "jsonl",
                   data::token_examples_path(arguments.out), arguments.overwrite);
  data::TableImportOptions options = arguments.options;
  options.answer = arguments.numbers ? data::AnswerKind::kNumber : data::AnswerKind::kClass;
  options.train = source_of(arguments, arguments.file);
  if (!arguments.validation.empty()) options.validation = {source_of(arguments, arguments.validation)};
  if (!arguments.test.empty()) options.test = {source_of(arguments, arguments.test)};
  if (!options.metric.empty())
    TORCH_CHECK_VALUE(tasks::metric_named(options.metric).counts_right != arguments.numbers,
                      "--metric: expected one of ", arguments.numbers ? "numbers" : "classes", "; got ",
                      options.metric);
  options.tokenizer = tokenizer_named(arguments.tokenizer);
  save_and_describe_table(options, arguments.out);
  return 0;
}

void add_form(CLI::App& data, Action& action, data::TableForm form) {
  auto arguments = std::make_shared<TableArguments>();
  arguments->columns.form = form;
  const bool is_tsv = form == data::TableForm::kTsv;
  CLI::App* command =
      is_tsv ? data.add_subcommand("tsv", "Texts of your own with labels: a table, fields divided by tabs")
             : data.add_subcommand("jsonl", "Texts of your own with labels: an object of JSON a line");
  const std::string key = is_tsv ? "column" : "key";
  command->add_option("file", arguments->file, "training rows, plain or .xz")->required();
  command
      ->add_option(
          "--text", arguments->columns.text,
          is_tsv ? "column of the text: its name in the first line, or its number from 1" : "key of the text")
      ->required();
  command->add_option("--label", arguments->columns.label, key + " of the label")->required();
  command->add_option("--pair", arguments->columns.pair, key + " of a second text: pairs are labelled");
  command->add_option("--out", arguments->out, "folder for the data set")->required();
  command->add_option("--validation", arguments->validation,
                      "rows to choose the best checkpoint by; default: held out of the training rows");
  command->add_option("--test", arguments->test, "rows to test on; default: held out of the training rows");
  command
      ->add_option("--hold-out", arguments->options.hold_out,
                   "share of the training rows that is held out for each")
      ->capture_default_str()
      ->check(number_between(0.001, 0.4));
  command->add_option("--seed", arguments->options.seed, "which rows are held out")
      ->capture_default_str()
      ->check(whole_number(0));
  if (is_tsv) command->add_flag("--no-header", arguments->no_header, "the first line is a row already");
  command->add_flag("--numbers", arguments->numbers, "labels are numbers to be predicted, not classes");
  command->add_option("--classes", arguments->options.classes,
                      "the labels in their order; default: those of the training rows, sorted");
  command
      ->add_option("--metric", arguments->options.metric,
                   "what the best checkpoint is chosen by: accuracy, f1 (of the second of two classes), "
                   "macro_f1 or matthews; of numbers pearson or spearman")
      ->check(one_of({"accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman"}));
  add_tokenizer_options(*command, arguments->tokenizer, arguments->options);
  command->add_flag("--skip-faulty", arguments->options.skip_faulty,
                    "leave out rows that cannot be read, and say how many");
  command->add_flag("--any-bytes", arguments->options.any_bytes, "texts need not be UTF-8");
  command->add_flag("--overwrite", arguments->overwrite, kOverwriteHelp);
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace

void add_tokenizer_options(CLI::App& command, std::string& tokenizer, data::TableImportOptions& options) {
  command.add_option("--tokenizer", tokenizer,
                     "folder of a tokeniser, or bytes; default: one is learned from the training texts");
  command.add_option("--vocabulary", options.vocabulary, "ids of a tokeniser that is learned, at most")
      ->capture_default_str()
      ->check(whole_number(300));
  command.add_option("--max-length", options.max_length, "tokens of a text that are read; the rest is cut")
      ->capture_default_str()
      ->check(whole_number(8));
}

std::shared_ptr<const data::Tokenizer> tokenizer_named(const std::string& name) {
  if (name.empty()) return nullptr;
  if (name == "bytes" && !std::filesystem::exists(name)) return std::make_shared<data::BytesTokenizer>();
  return data::load_tokenizer(name);
}

void save_and_describe_table(data::TableImportOptions options, const std::string& folder) {
  train::ProgressOptions bar;
  bar.label = "texts";
  bar.unit = "row";
  bar.transient = true;
  train::Progress progress(bar);
  options.progress = [&](const std::string& doing, int64_t rows) {
    progress.update(rows, {{"doing", doing}});
  };
  data::ImportedTable made = data::import_table(options);
  progress.finish();
  data::save_token_examples(folder, made.examples, made.reader);
  // What was written is read back, with all its checks: the figures below are those of the files.
  const data::TextReader reader = data::TextReader::load(data::text_reader_path(folder));
  const data::TokenExamples examples = data::load_token_examples(folder, reader);
  const data::TextReaderOptions& texts = reader.options();
  if (made.faults.count > 0)
    std::cerr << counted(made.faults.count, "row") << " left out. The first: " << made.faults.first << "\n";
  Table table({"split", "examples", "tokens, mean", "cut", "labels"});
  for (const data::Split split : {data::Split::kTrain, data::Split::kValidation, data::Split::kTest}) {
    const data::TokenExamples::Part& part = examples.part(split);
    table.add({std::string(data::to_string(split)), std::to_string(part.size()),
               fixed(static_cast<double>(part.tokens.size()) / static_cast<double>(part.size()), 1),
               std::to_string(made.cut[static_cast<size_t>(split)]),
               texts.answer == data::AnswerKind::kClass ? shares_of_classes(part.answers, texts.classes)
                                                        : "numbers"});
  }
  table.print(std::cout);
  std::cout << folder << ": "
            << (texts.answer == data::AnswerKind::kClass
                    ? std::to_string(texts.classes.size()) + " classes"
                    : "numbers of mean " + fixed(texts.mean, 4) + " and standard deviation " +
                          fixed(texts.scale, 4))
            << ", judged by " << texts.metric << ", " << reader.tokenizer().kind() << " of "
            << reader.vocabulary() << " ids, at most " << texts.max_length << " tokens\n";
  if (made.seen > 0)
    std::cout << made.seen << " of the validation and test texts are in train too, letter by letter\n";
}

void add_data_table(CLI::App& data, Action& action) {
  add_form(data, action, data::TableForm::kTsv);
  add_form(data, action, data::TableForm::kJsonLines);
}

}  // namespace edgewise::app
