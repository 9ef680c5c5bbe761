// edgewise reproduce lra: run folders and sweeps as tables of the Long Range Arena, a task at a time, beside
// the SBM paper's figures; differences over seeds; plots of accuracy over density and over the time of a
// step.
#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>
#include <string_view>
#include <utility>

#include "command.h"
#include "data/datasets.h"
#include "report/lra_paper.h"
#include "report/lra_plots.h"
#include "report/lra_rows.h"
#include "report/lra_tables.h"
#include "runs.h"
#include "table.h"
#include "usage.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct ReproduceArguments {
  RunChoice runs;
  std::string svg;
  std::vector<std::string> tasks;
  bool json = false, markdown = false;
};

struct FirstToken {
  double percent = kListOpsFirstToken;
  std::string of = "of the distribution";
};

// On the test set of the runs, or, where that is not at hand, of the distribution.
FirstToken first_token_accuracy(const std::vector<Run>& runs) {
  std::set<std::pair<std::string, std::string>> tried;  // runs of the same data need not open it again
  for (const Run& run : runs) {
    if (run.recipe.data.name != "listops") continue;
    const std::string& path = run.recipe.data.path;
    if (!tried.emplace(path, run.data).second) continue;
    std::string why_not;
    const tasks::TaskPtr task = task_of_run(run.data, run.folder.string(), run.recipe, why_not);
    if (!why_not.empty()) std::cerr << "no first-token baseline of a test set: " << why_not << "\n";
    if (!task) continue;
    for (const data::Baseline& baseline : task->baselines(data::Split::kTest)) {
      if (baseline.name == "first token only") return {100 * baseline.value, "on the test set in " + path};
    }
  }
  return {};
}

bool is_wanted(size_t task, const std::vector<std::string>& wanted) {
  return wanted.empty() || std::ranges::find(wanted, kLraTasks[task].name) != wanted.end();
}

// Runs of the wanted tasks from folders, sweeps and files of runs; what is left out is told.
std::vector<Run> gather(const ReproduceArguments& arguments) {
  std::vector<Run> runs;
  for (const std::string& place : arguments.runs.places)
    for (Run& run : read_place(place, "reproduce lra")) {
      if (!is_chosen(run, arguments.runs)) continue;
      const size_t task = lra_task_of(run);
      if (task == kLraTasks.size())
        std::cerr << run.folder.string() << " is of " << run.recipe.data.name << "; left out\n";
      else if (is_wanted(task, arguments.tasks))
        runs.push_back(std::move(run));
    }
  TORCH_CHECK_VALUE(!runs.empty(),
                    "reproduce lra: expected at least one run folder of the Long Range Arena; none of the ",
                    arguments.runs.places.size(), " given is one");
  return runs;
}

int run(const ReproduceArguments& arguments) {
  const std::vector<Run> runs = gather(arguments);
  const std::vector<LraRow> rows = lra_rows(runs);
  const bool has_listops =
      std::ranges::any_of(runs, [](const Run& run) { return run.recipe.data.name == "listops"; });
  const FirstToken first_token = has_listops ? first_token_accuracy(runs) : FirstToken();
  // First: a reader of the tables may go before their end.
  for (size_t task = 0; task < kLraTasks.size() && !arguments.svg.empty(); ++task)
    draw_task(rows, runs, task, first_token.percent, arguments.svg);
  if (arguments.json) {
    std::cout << json_of_tasks(rows) << "\n";
    return 0;
  }
  const TableForm form = arguments.markdown ? TableForm::kMarkdown : TableForm::kText;
  bool is_first = true;
  for (size_t task = 0; task < kLraTasks.size(); ++task) {
    if (std::ranges::none_of(rows, [&](const LraRow& row) { return row.task == task; })) continue;
    if (!std::exchange(is_first, false)) std::cout << "\n";
    print_task(rows, task, form, std::cout);
    if (std::string_view(kLraTasks[task].name) == "listops")
      std::cout << "\nListOps, the first token alone: " << fixed(first_token.percent, 2) << " % ("
                << first_token.of << ").\n";
  }
  print_untested(runs, form, std::cout);
  return 0;
}

}  // namespace

void add_reproduce(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("reproduce", "Put runs beside the figures of a paper");
  command->require_subcommand(1);
  auto arguments = std::make_shared<ReproduceArguments>();
  CLI::App* lra = command->add_subcommand(
      "lra", "SBM-Transformer on the Long Range Arena: a table for each task, and differences over seeds");
  add_run_choice(*lra, arguments->runs);
  std::vector<std::string> names;
  for (const LraTask& task : kLraTasks) names.emplace_back(task.name);
  lra->add_option("--task", arguments->tasks, "only these tasks: " + joined(names, "or"))
      ->delimiter(',')
      ->check(one_of(names));
  lra->add_option(
      "--svg", arguments->svg,
      "folder for plots: accuracy over density, and over the time of a step where it was measured");
  lra->add_flag("--markdown", arguments->markdown, "tables as Markdown")
      ->excludes(lra->add_flag("--json", arguments->json, "one JSON object instead of tables"));
  lra->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
