// edgewise predict: the answers of a trained run to texts, as they come.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <edgewise/data/examples/table_rows.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/train/predictor.h>
#include <edgewise/train/recipe.h>

#include <filesystem>
#include <iostream>
#include <optional>

#include "command.h"
#include "data/text/each_line.h"
#include "folders.h"
#include "predict/answers.h"
#include "predict/standard_input.h"
#include "runs.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct PredictArguments {
  std::string run, checkpoint, out, form;
  std::vector<std::string> files;
  std::optional<std::string> text, pair;
  bool no_header = false, any_bytes = false;
  int64_t batch = 32, most_classes = 10;
  train::PredictorOptions predictor;
};

enum class InputForm { kLines, kTsv, kJsonLines };

// Takes lines, answers them by the batch, and tells the answers in their order. A line that cannot be read
// gets its reason in place of an answer.
class Answering {
 public:
  using Tell = std::function<void(const std::string& line)>;
  Answering(const train::Predictor& predictor, const PredictArguments& arguments, Tell tell)
      : predictor_(predictor),
        arguments_(arguments),
        form_{.reader = &predictor.reader(), .most_classes = arguments.most_classes},
        tell_(std::move(tell)) {}

  // The lines of another file; the columns are found anew.
  void begin(const std::string& file, InputForm form) {
    const data::TextReaderOptions& reader = predictor_.reader().options();
    data::TableOptions table{
        .form = form == InputForm::kJsonLines ? data::TableForm::kJsonLines : data::TableForm::kTsv,
        .columns = {arguments_.text.value_or(reader.text_column)},
        .has_header = !arguments_.no_header,
        .any_bytes = arguments_.any_bytes};
    if (reader.reads_pairs()) table.columns.push_back(arguments_.pair.value_or(reader.pair_column));
    if (form == InputForm::kLines) {  // a text is the whole line; a pair, its two fields
      table.columns = {"1"};
      if (reader.reads_pairs()) table.columns.push_back("2");
      table.has_header = false;
    }
    file_ = file;
    line_ = 0;
    input_ = form;
    needs_header_ = form == InputForm::kTsv && table.has_header;
    rows_.emplace(table);
  }

  void take(std::string_view line) {
    ++line_;
    try {
      data::check_line_length(line);
    } catch (const std::invalid_argument& error) {
      flush();  // what came before is not lost
      TORCH_CHECK_VALUE(false, file_, ":", line_, ": ", error.what());
    }
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    if (needs_header_) {
      needs_header_ = false;
      try {
        rows_->read_header(line);
      } catch (const std::invalid_argument& error) {
        TORCH_CHECK_VALUE(false, file_, ":", line_, ": ", error.what(),
                          ". Name the column with --text, or say --no-header");
      }
      return;
    }
    Pending& next = pending_.emplace_back();
    next.told["line"] = line_;
    if (arguments_.files.size() > 1) next.told["file"] = file_;
    try {
      next.ids = read(line);
      ++texts_;
    } catch (const std::invalid_argument& error) {
      next.told["error"] = error.what();
      ++errors_;
    }
    if (texts_ == arguments_.batch || std::ssize(pending_) == 4 * arguments_.batch) flush();
  }

  // Answers what has been taken and not answered yet.
  void flush() {
    std::vector<std::vector<int32_t>> texts;
    for (Pending& each : pending_)
      if (!each.ids.empty()) texts.push_back(std::move(each.ids));
    at::Tensor logits;
    if (!texts.empty()) logits = predictor_.answer(texts, answered_);
    int64_t row = 0;
    for (Pending& each : pending_) {
      if (!each.told.contains("error")) add_answer(each.told, logits[row++], form_);
      tell_(line_of(each.told));
    }
    answered_ += row;
    texts_ = 0;
    pending_.clear();
  }

  int64_t answered() const { return answered_; }
  int64_t errors() const { return errors_; }

 private:
  struct Pending {
    nlohmann::ordered_json told;
    std::vector<int32_t> ids;  // empty: it has an error
  };

  std::vector<int32_t> read(std::string_view line) {
    std::vector<std::string> values;
    const bool pairs = predictor_.reader().options().reads_pairs();
    if (input_ == InputForm::kLines && !pairs) {  // tabs are part of the text
      if (!arguments_.any_bytes) data::check_utf8(line);
      values.emplace_back(line);
    } else {
      rows_->read(line, values);
    }
    std::vector<int32_t> ids;
    predictor_.reader().read(values[0], pairs ? std::optional<std::string_view>(values[1]) : std::nullopt,
                             ids);
    return ids;
  }

  const train::Predictor& predictor_;
  const PredictArguments& arguments_;
  AnswerForm form_;
  Tell tell_;
  std::string file_;
  InputForm input_ = InputForm::kLines;
  bool needs_header_ = false;
  std::optional<data::RowReader> rows_;
  int64_t line_ = 0, texts_ = 0, answered_ = 0, errors_ = 0;
  std::vector<Pending> pending_;
};

InputForm form_of(const PredictArguments& arguments, const std::string& file) {
  std::filesystem::path path(file);
  if (path.extension() == ".xz") path = path.stem();
  const std::string form = arguments.form.empty() ? path.extension().string() : "." + arguments.form;
  return form == ".tsv" ? InputForm::kTsv : form == ".jsonl" ? InputForm::kJsonLines : InputForm::kLines;
}

void answer_all(Answering& answering, const PredictArguments& arguments) {
  if (arguments.files.empty()) {
    answering.begin("standard input", form_of(arguments, ""));
    each_line_of_input(
        "predict", [&](std::string_view line) { answering.take(line); }, [&] { answering.flush(); });
  }
  for (const std::string& file : arguments.files) {
    answering.begin(file, form_of(arguments, file));
    data::each_line(
        file, [&](std::string_view line) { answering.take(line); }, data::kLongestLine + 1);
  }
  answering.flush();
}

int run(const PredictArguments& arguments) {
  const std::filesystem::path folder(arguments.run);
  expect_run_folder(folder, "config.toml", "predict");
  train::PredictorOptions options = arguments.predictor;
  options.checkpoint = checkpoint_file(folder, arguments.checkpoint, "predict");
  const train::Recipe recipe = train::load_recipe((folder / "config.toml").string());
  if (recipe.train.threads > 0) at::set_num_threads(static_cast<int>(recipe.train.threads));
  const train::Predictor predictor(folder, options);
  std::optional<io::AtomicFile> file;
  if (!arguments.out.empty()) file.emplace(arguments.out);
  Answering answering(predictor, arguments, [&](const std::string& line) {
    if (file)
      file->write(line);
    else
      std::cout << line << std::flush;
  });
  answer_all(answering, arguments);
  if (file) file->commit();
  std::cerr << counted(answering.answered(), "text") << " answered";
  if (answering.errors() > 0)
    std::cerr << ", " << answering.errors() << " could not be read; their lines have an error instead";
  std::cerr << "\n";
  return answering.errors() > 0 ? 1 : 0;
}

}  // namespace

void add_predict(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PredictArguments>();
  CLI::App* command = app.add_subcommand("predict", "Let a trained run answer texts: labels or numbers");
  command->add_option("run", arguments->run, "run folder of a recipe with data.name = labelled_text")
      ->required();
  command->add_option(
      "files", arguments->files,
      "texts, plain or .xz: NAME.tsv and NAME.jsonl are tables, in other files every line is a "
      "text; default: lines of standard input");
  command->add_option("--form", arguments->form, "lines, tsv or jsonl, whatever the names of the files")
      ->check(one_of({"lines", "tsv", "jsonl"}));
  command->add_option("--text", arguments->text, "column of the text; default: as in training");
  command->add_option("--pair", arguments->pair, "column of the second text; default: as in training");
  command->add_flag("--no-header", arguments->no_header, "the first line of a table is a row already");
  command->add_flag("--any-bytes", arguments->any_bytes, "texts need not be UTF-8");
  command->add_option("--out", arguments->out,
                      "file for the answers, which appears when all are there; default: standard output");
  command->add_option("--top", arguments->most_classes, "probabilities of so many classes, the likeliest")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--batch", arguments->batch, "texts at a time")
      ->capture_default_str()
      ->check(whole_number(1));
  command
      ->add_option("--checkpoint", arguments->checkpoint,
                   "best or last; default: best, or last before the first validation")
      ->check(one_of({"best", "last"}));
  command
      ->add_option("--draws", arguments->predictor.draws,
                   "average the logits of so many draws of the edges; default: the recipe's")
      ->check(whole_number(1));
  command->add_option("--device", arguments->predictor.device, "cpu or cuda; default: the recipe's");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
