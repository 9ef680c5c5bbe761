// edgewise translate: lines in another language, by a trained run.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <edgewise/data/examples/table_rows.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/train/translator.h>

#include <filesystem>
#include <iostream>
#include <optional>
#include <stdexcept>

#include "command.h"
#include "data/text/each_line.h"
#include "folders.h"
#include "predict/standard_input.h"
#include "runs.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct TranslateArguments {
  std::string run, checkpoint, out;
  std::vector<std::string> files;
  int64_t batch = 64;
  std::optional<int64_t> beam;
  train::TranslatorOptions translator;
};

// Takes lines and tells their translations in the same order, one a line: an empty line for one that is empty
// or cannot be read, of which standard error says why.
class Translating {
 public:
  Translating(const train::Translator& translator, const TranslateArguments& arguments)
      : translator_(translator), arguments_(arguments) {
    if (!arguments.out.empty()) file_.emplace(arguments.out);
  }

  void begin(const std::string& file) {
    name_ = file;
    line_ = 0;
  }

  void take(std::string_view line) {
    ++line_;
    try {
      data::check_line_length(line);
    } catch (const std::invalid_argument& error) {
      flush();  // what came before is not lost
      TORCH_CHECK_VALUE(false, name_, ":", line_, ": ", error.what());
    }
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
    std::vector<int32_t>& ids = pending_.emplace_back();
    if (line.find_first_not_of(" \t") == std::string_view::npos) {
      ++empty_;
    } else {
      try {
        data::check_utf8(line);
        ids = translator_.read(std::string(line));
        ++texts_;
      } catch (const std::invalid_argument& error) {
        std::cerr << name_ << ":" << line_ << ": " << error.what() << "\n";
        ++errors_;
      }
    }
    if (texts_ == arguments_.batch || std::ssize(pending_) == 4 * arguments_.batch) flush();
  }

  void flush() {
    std::vector<std::vector<int32_t>> texts;
    for (const std::vector<int32_t>& ids : pending_)
      if (!ids.empty()) texts.push_back(ids);
    std::vector<std::string> lines;
    if (!texts.empty()) lines = translator_.translate(texts, done_);
    size_t next = 0;
    for (const std::vector<int32_t>& ids : pending_) tell(ids.empty() ? "\n" : lines[next++] + "\n");
    done_ += std::ssize(texts);
    texts_ = 0;
    pending_.clear();
  }

  int finish() {
    flush();
    if (file_) file_->commit();
    std::cerr << counted(done_, "line") << " translated";
    if (empty_ > 0) std::cerr << ", " << empty_ << " empty";
    if (errors_ > 0) std::cerr << ", " << errors_ << " could not be read and are empty";
    std::cerr << "\n";
    return errors_ > 0 ? 1 : 0;
  }

 private:
  void tell(const std::string& line) {
    if (file_)
      file_->write(line);
    else
      std::cout << line << std::flush;
  }

  const train::Translator& translator_;
  const TranslateArguments& arguments_;
  std::optional<io::AtomicFile> file_;
  std::string name_;
  int64_t line_ = 0, texts_ = 0, done_ = 0, empty_ = 0, errors_ = 0;
  std::vector<std::vector<int32_t>> pending_;  // empty: nothing to translate
};

int run(const TranslateArguments& arguments) {
  const std::filesystem::path folder(arguments.run);
  expect_run_folder(folder, "config.toml", "translate");
  train::TranslatorOptions options = arguments.translator;
  options.checkpoint = checkpoint_file(folder, arguments.checkpoint, "translate");
  if (arguments.beam) options.overrides.push_back("translation.beam=" + std::to_string(*arguments.beam));
  const train::Recipe recipe = train::load_recipe((folder / "config.toml").string());
  if (recipe.train.threads > 0) at::set_num_threads(static_cast<int>(recipe.train.threads));
  const train::Translator translator(folder, options);
  Translating translating(translator, arguments);
  if (arguments.files.empty()) {
    translating.begin("standard input");
    each_line_of_input(
        "translate", [&](std::string_view line) { translating.take(line); }, [&] { translating.flush(); });
  }
  for (const std::string& file : arguments.files) {
    translating.begin(file);
    data::each_line(
        file, [&](std::string_view line) { translating.take(line); }, data::kLongestLine + 1);
  }
  return translating.finish();
}

}  // namespace

void add_translate(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<TranslateArguments>();
  CLI::App* command = app.add_subcommand("translate", "Let a trained run translate texts, line by line");
  command->add_option("run", arguments->run, "run folder of a recipe with data.name = translation")
      ->required();
  command->add_option("files", arguments->files,
                      "texts, plain or .xz, a sentence a line; default: lines of standard input");
  command->add_option(
      "--out", arguments->out,
      "file for the translations, which appears when all are there; default: standard output");
  command->add_option("--beam", arguments->beam, "hypotheses of a sentence; default: the recipe's")
      ->check(whole_number(1));
  command->add_option("--batch", arguments->batch, "sentences at a time")
      ->capture_default_str()
      ->check(whole_number(1));
  command
      ->add_option("--checkpoint", arguments->checkpoint,
                   "mean, best or last; default: mean where there is one, else best")
      ->check(one_of({"mean", "best", "last"}));
  command
      ->add_option("--set", arguments->translator.overrides,
                   "override a key of the run's recipe, e.g. translation.penalty=0.6")
      ->allow_extra_args(false);
  command->add_option("--device", arguments->translator.device, "cpu or cuda; default: the recipe's");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
