#include "data/data_translation.h"

#include <c10/util/Exception.h>
#include <edgewise/data/examples/import_translation.h>
#include <edgewise/train/progress.h>

#include <filesystem>
#include <iostream>

#include "data/data_examples.h"
#include "data/data_lra.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct TranslationArguments {
  std::string train, validation, out, tokenizer;
  std::vector<std::string> tests;
  data::TranslationImportOptions options;
  data::TableImportOptions pieces;  // vocabulary and length
  bool overwrite = false;
};

// Two files by their common beginning: PLACE.en and PLACE.de.
data::ParallelFiles files_at(const std::string& place, const data::TranslationImportOptions& options) {
  std::string name = std::filesystem::path(place).filename().string();
  if (name.starts_with("test.") || name.starts_with("test_")) name = name.substr(5);
  return {.name = name,
          .source = place + "." + options.source_language,
          .target = place + "." + options.target_language};
}

int run(const TranslationArguments& arguments) {
  check_overwrites("translation", data::token_examples_path(arguments.out), arguments.overwrite);
  data::TranslationImportOptions options = arguments.options;
  options.train = files_at(arguments.train, options);
  options.validation = files_at(arguments.validation, options);
  for (const std::string& place : arguments.tests) options.tests.push_back(files_at(place, options));
  options.tokenizer = tokenizer_named(arguments.tokenizer);
  options.vocabulary = arguments.pieces.vocabulary;
  options.max_length = arguments.pieces.max_length;
  TORCH_CHECK_VALUE(options.subword_merges == 0 || !options.tokenizer,
                    "data translation: expected --subwords or --tokenizer, not both");
  train::ProgressOptions bar;
  bar.label = "translation";
  bar.unit = "line";
  bar.transient = true;
  train::Progress progress(bar);
  options.progress = [&](const std::string& doing, int64_t lines) {
    progress.update(lines, {{"doing", doing}});
  };
  const data::ImportedTranslation made = data::import_translation(options);
  progress.finish();
  data::save_translation(arguments.out, made.examples, made.reader, made.sets);
  // What was written is read back, with all its checks: the figures below are those of the files.
  const data::TranslationPairs pairs(arguments.out);
  Table table({"split", "pairs", options.source_language + " tokens, mean",
               options.target_language + " tokens, mean", "longest"});
  for (const data::Split split : {data::Split::kTrain, data::Split::kValidation, data::Split::kTest}) {
    double source = 0, target = 0;
    int64_t longest = 0;
    for (int64_t index = 0; index < pairs.size(split); ++index) {
      source += static_cast<double>(pairs.source_length(split, index) - 1);
      target += static_cast<double>(pairs.target_length(split, index) - 1);
      longest = std::max(longest, pairs.length(split, index) - 1);
    }
    const auto size = static_cast<double>(pairs.size(split));
    table.add({std::string(data::to_string(split)), std::to_string(pairs.size(split)),
               fixed(source / size, 1), fixed(target / size, 1), std::to_string(longest)});
  }
  table.print(std::cout);
  std::cout << arguments.out << ": " << pairs.reader()->tokenizer().kind() << " of " << pairs.vocabulary()
            << " ids, judged by " << pairs.reader()->options().metric << "; test sets";
  for (const data::TestSet& set : pairs.sets(data::Split::kTest))
    std::cout << " " << set.name << " (" << set.pairs << ")";
  std::cout << "\n";
  if (made.empty > 0)
    std::cerr << counted(made.empty, "pair") << " with an empty line left out of training\n";
  if (made.too_long > 0)
    std::cerr << counted(made.too_long, "pair") << " of more than " << options.max_length
              << " tokens left out of training\n";
  if (made.cut > 0)
    std::cerr << counted(made.cut, "sentence") << " of validation and test cut to " << options.max_length
              << " tokens\n";
  return 0;
}

}  // namespace

void add_data_translation(CLI::App& data, Action& action) {
  auto arguments = std::make_shared<TranslationArguments>();
  arguments->pieces.max_length = arguments->options.max_length;
  data::TranslationImportOptions& options = arguments->options;
  CLI::App* command = data.add_subcommand(
      "translation", "Sentences with their translations, a line each in two files, plain or .xz");
  command
      ->add_option("--source", options.source_language, "ending of the files to translate from, such as en")
      ->required();
  command->add_option("--target", options.target_language, "ending of the files to translate to, such as de")
      ->required();
  command
      ->add_option("--train", arguments->train,
                   "training files without their endings: corpus/train for corpus/train.en and "
                   "corpus/train.de")
      ->required();
  command->add_option("--validation", arguments->validation, "files to choose the best checkpoint by")
      ->required();
  command
      ->add_option("--test", arguments->tests,
                   "files to test on; more than one: sets with a BLEU each, the first of which judges a run")
      ->required();
  command->add_option("--out", arguments->out, "folder for the data set")->required();
  command
      ->add_option("--subwords", options.subword_merges,
                   "words stand between blanks: learn so many merges of subword-nmt on both languages, and "
                   "count BLEU on words as they stand")
      ->check(whole_number(1));
  add_tokenizer_options(*command, arguments->tokenizer, arguments->pieces);
  command->add_flag("--skip-empty", options.skip_empty,
                    "leave training pairs with an empty line out, and say how many");
  command->add_flag("--any-bytes", options.any_bytes, "texts need not be UTF-8");
  command->add_flag("--overwrite", arguments->overwrite, kOverwriteHelp);
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
