// edgewise data: makes data sets.
#include <edgewise/data/listops_dataset.h>
#include <edgewise/data/listops_file.h>
#include <edgewise/train/progress.h>

#include <iostream>
#include <thread>

#include "command.h"
#include "data/data_glue.h"
#include "data/data_graph.h"
#include "data/data_images.h"
#include "data/data_lra.h"
#include "data/data_table.h"
#include "data/data_tokenizer.h"
#include "data/data_translation.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct ListOpsArguments {
  std::string out;
  bool overwrite = false;
  data::ListOpsOptions options;
};

int run(const ListOpsArguments& arguments) {
  const data::ListOpsOptions& o = arguments.options;
  for (const data::Split split : {data::Split::kTrain, data::Split::kValidation, data::Split::kTest})
    check_overwrites("listops", data::listops_path(arguments.out, split), arguments.overwrite);
  data::prepare_listops_folder(arguments.out);  // a folder that cannot be written is known before the work
  train::ProgressOptions bar;
  bar.label = "listops";
  bar.total = o.train_size + o.validation_size + o.test_size;
  bar.unit = "tree";
  train::Progress progress(bar);
  data::ListOpsData made = data::generate_listops(o, [&](int64_t kept, int64_t) { progress.update(kept); });
  progress.finish();
  data::write_listops(arguments.out, made);
  const double trials = static_cast<double>(made.attempts) / static_cast<double>(bar.total);
  const data::ListOpsDataset dataset(std::move(made));
  Table table({"file", "examples"});
  for (const data::Split split : {data::Split::kTrain, data::Split::kValidation, data::Split::kTest})
    table.add({data::listops_path(arguments.out, split), std::to_string(dataset.size(split))});
  table.print(std::cout);
  std::cout << "trees drawn per tree kept: " << fixed(trials, 1);
  if (o.train_size > 0 && o.test_size > 0)
    std::cout << "; first-token baseline on test: "
              << percent(data::first_token_baseline(dataset, data::Split::kTest));
  std::cout << "\n";
  return 0;
}

}  // namespace

void add_data(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("data", "Make a data set or a tokeniser");
  command->require_subcommand(1);
  auto arguments = std::make_shared<ListOpsArguments>();
  arguments->options.jobs = std::max(1u, std::thread::hardware_concurrency());
  CLI::App* listops = command->add_subcommand("listops", "ListOps, in the Long Range Arena's file format");
  listops->add_option("--out", arguments->out, "folder for basic_train.tsv, basic_val.tsv and basic_test.tsv")
      ->required();
  listops->add_flag("--overwrite", arguments->overwrite, kOverwriteHelp);
  listops->add_option("--train", arguments->options.train_size, "training examples")
      ->capture_default_str()
      ->check(whole_number(1));
  listops->add_option("--validation", arguments->options.validation_size, "validation examples")
      ->capture_default_str()
      ->check(whole_number(1));
  listops->add_option("--test", arguments->options.test_size, "test examples")
      ->capture_default_str()
      ->check(whole_number(1));
  listops->add_option("--seed", arguments->options.seed, "the same seed gives the same files")
      ->capture_default_str()
      ->check(whole_number(0));
  listops->add_option("--jobs", arguments->options.jobs, "threads; never changes the files")
      ->capture_default_str()
      ->check(whole_number(1));
  listops->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
  add_data_table(*command, action);
  add_data_glue(*command, action);
  add_data_graph(*command, action);
  add_data_images(*command, action);
  add_data_lra(*command, action);
  add_data_translation(*command, action);
  add_data_tokenizer(*command, action);
}

}  // namespace edgewise::app
