// edgewise data glue TASK: a task of GLUE, from the files that it is distributed as.
#include <edgewise/data/examples/glue.h>

#include <memory>

#include "data/data_examples.h"
#include "data/data_glue.h"
#include "data/data_lra.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct GlueArguments {
  std::string task, from, out, tokenizer;
  bool choose_on_dev = false, overwrite = false;
  data::TableImportOptions options;  // vocabulary, length, seed, rows that cannot be read
};

int run(const GlueArguments& arguments) {
  check_overwrites("glue", data::token_examples_path(arguments.out), arguments.overwrite);
  data::TableImportOptions options =
      data::glue_import(data::glue_task(arguments.task), arguments.from, arguments.choose_on_dev);
  options.tokenizer = tokenizer_named(arguments.tokenizer);
  options.vocabulary = arguments.options.vocabulary;
  options.max_length = arguments.options.max_length;
  options.seed = arguments.options.seed;
  options.skip_faulty = arguments.options.skip_faulty;
  save_and_describe_table(options, arguments.out);
  return 0;
}

}  // namespace

void add_data_glue(CLI::App& data, Action& action) {
  auto arguments = std::make_shared<GlueArguments>();
  CLI::App* command = data.add_subcommand("glue", "A task of GLUE, from its official files");
  std::vector<std::string> names;
  std::string list;
  for (const data::GlueTask& task : data::glue_tasks()) {
    names.push_back(task.name);
    list += (list.empty() ? "" : ", ") + task.name;
  }
  command->add_option("task", arguments->task, list)->required()->check(one_of(names));
  command
      ->add_option("--from", arguments->from,
                   "GLUE's folder with CoLA, MNLI, MRPC, ..., or the task's own with train.tsv and dev.tsv")
      ->required();
  command->add_option("--out", arguments->out, "folder for the data set")->required();
  command->add_flag("--choose-on-dev", arguments->choose_on_dev,
                    "dev.tsv, which is the test split here, also chooses the checkpoint, as is published; "
                    "default: a twentieth of train.tsv does");
  command->add_option("--seed", arguments->options.seed, "which training rows are held out")
      ->capture_default_str()
      ->check(whole_number(0));
  add_tokenizer_options(*command, arguments->tokenizer, arguments->options);
  command->add_flag("--skip-faulty", arguments->options.skip_faulty,
                    "leave out rows that cannot be read, and say how many");
  command->add_flag("--overwrite", arguments->overwrite, kOverwriteHelp);
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
