// edgewise train: a recipe to a run folder.
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/device_profile.h>
#include <edgewise/train/profile.h>
#include <edgewise/train/ranks.h>
#include <edgewise/train/recipe.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "command.h"
#include "table.h"

namespace edgewise::app {
namespace {

struct TrainArguments {
  std::string recipe, run;
  std::vector<std::string> overrides;
  std::optional<std::string> help_recipe;  // the form
  bool resume = false, quiet = false, print_recipe = false, profile = false;
};

// runs/<recipe name>/<first free number>.
std::filesystem::path next_run_folder(const std::string& recipe) {
  const std::filesystem::path base = std::filesystem::path("runs") / std::filesystem::path(recipe).stem();
  for (int number = 1;; ++number)
    if (const auto folder = base / std::to_string(number); !std::filesystem::exists(folder)) return folder;
}

// Everything that defines the run, before step 0.
void print_settings(const train::Recipe& recipe, const data::Dataset& dataset, const Model& model,
                    const std::filesystem::path& folder) {
  int64_t parameters = 0;
  for (const auto& p : model.parameters()) parameters += p.numel();
  const auto& m = recipe.model;
  const auto& t = recipe.train;
  std::cerr << "run        " << folder.string() << "\n"
            << "data       " << dataset.summary() << ", " << dataset.size(data::Split::kTrain) << " train"
            << (recipe.data.symmetries == "none" ? "" : " (data.symmetries = " + recipe.data.symmetries + ")")
            << ", " << dataset.size(data::Split::kValidation) << " validation, "
            << dataset.size(data::Split::kTest) << " test\n"
            << "model      ";
  if (const auto& kind = train::task_kind(recipe); kind.describe_model)
    std::cerr << kind.describe_model(recipe);
  else
    std::cerr << counted(m.layers, "layer") << ", " << counted(m.heads, "head") << " of " << m.head_dim();
  std::cerr << ", " << counted(parameters, "parameter") << "\n"
            << "attention  " << train::describe_attention(recipe);
  if (const auto& kind = train::attention_kind(recipe); kind.description)
    std::cerr << ": " << kind.description(recipe);
  std::cerr << "\ntraining   " << counted(t.steps, "step") << " of " << t.batch << " (micro-batch "
            << t.micro_batch << "), learning rate " << t.learning_rate << " " << t.schedule << ", seed "
            << t.seed << ", device " << t.device << (t.cuda_graph ? ", passes replayed from CUDA graphs" : "")
            << "\n";
}

// How the ranks share the work.
void print_ranks(const train::Recipe& recipe, const train::Ranks& ranks) {
  const auto& t = recipe.train;
  std::cerr << "ranks      " << ranks.size()
            << (ranks.on_one_host() ? " on one machine" : " on several machines") << ", gradients by "
            << ranks.backend();
  if (t.batch_tokens == 0)
    std::cerr << ", " << t.batch / ranks.size() << " items each, in micro-batches of "
              << std::min(t.micro_batch, t.batch / ranks.size());
  if (ranks.place().attempt > 0)
    std::cerr << "; started again " << counted(ranks.place().attempt, "time") << " by torchrun";
  std::cerr << "\n";
}

// Which recipe, and in which folder. A run folder stands for the recipe in it: train --resume RUN.
struct Place {
  std::string recipe;
  std::filesystem::path folder;
};

// Arguments that no recipe and no folder could make right; thrown while they are parsed.
void check_usage(const TrainArguments& arguments) {
  const std::string &given = arguments.recipe, &run = arguments.run;
  if (arguments.help_recipe) return;
  if (!arguments.resume) {
    if (given.empty()) throw CLI::ValidationError("expected a recipe, e.g. recipes/demo/edgewise.toml");
    return;
  }
  std::error_code ignored;  // what cannot be looked at is an error of the command, not of its usage
  if (run.empty() && (given.empty() || std::filesystem::is_regular_file(given, ignored)))
    throw CLI::ValidationError(
        "--resume: expected a run folder, e.g. edgewise train --resume runs/mine; got " +
        (given.empty() ? "none" : "the file " + given + " and no --run"));
  if (!run.empty() && std::filesystem::is_directory(given, ignored) &&
      !std::filesystem::equivalent(run, given, ignored))
    throw CLI::ValidationError("--resume: expected one run folder; got " + given + " and --run " + run);
}

Place find_place(const TrainArguments& arguments) {
  const std::string &given = arguments.recipe, &run = arguments.run;
  const bool names_run = std::filesystem::is_directory(given);
  if (!arguments.resume) {
    TORCH_CHECK_VALUE(!names_run, "train: expected a recipe; ", given, " is a folder. ",
                      std::filesystem::exists(std::filesystem::path(given) / "config.toml")
                          ? "To continue the run in it: edgewise train --resume " + given
                          : "Name one of the .toml files in it.");
    return {given, run.empty() ? next_run_folder(given) : std::filesystem::path(run)};
  }
  const std::filesystem::path folder = run.empty() ? given : run;
  const bool names_recipe = !run.empty() && !given.empty() && !names_run;  // one to begin with, if need be
  if (names_recipe) return {given, folder};
  TORCH_CHECK_VALUE(std::filesystem::exists(folder),
                    "train --resume: expected a run folder; there is no folder ", folder.string(),
                    ". Name the folder of a run, or a recipe to start one there.");
  const std::string recipe = (folder / "config.toml").string();
  TORCH_CHECK_VALUE(std::filesystem::exists(recipe), "train --resume: expected the recipe of the run in ",
                    recipe, "; there is none. Name the folder of a run, or a recipe to start one there.");
  return {recipe, folder};
}

constexpr size_t kMostProfileLines = 20;

// Phases of the run, then operations without what they called; all in shares of the whole time.
void print_profile(const train::Profile& profile) {
  const double whole = profile.seconds();
  Table phases({"phase", "times", "seconds", "share"}),
      operations({"operation", "calls", "seconds", "share"});
  const auto add = [&](Table& table, const train::ProfileLine& line) {
    table.add(
        {line.name, std::to_string(line.calls), fixed(line.seconds, 3), percent(line.seconds / whole, 1)});
  };
  for (const train::ProfileLine& line : profile.phases()) add(phases, line);
  phases.add({"the rest", "", fixed(whole - profile.phase_seconds(), 3),
              percent(1 - profile.phase_seconds() / whole, 1)});
  size_t shown = 0;
  train::ProfileLine rest{"the rest", 0, 0};
  for (const train::ProfileLine& line : profile.operations()) {
    // Our operators, and the backward passes of our functions, are shown however short.
    const bool is_ours = line.name.starts_with("edgewise::") || line.name.ends_with(", backward");
    if (shown++ < kMostProfileLines || is_ours)
      add(operations, line);
    else
      rest.calls += line.calls, rest.seconds += line.seconds;
  }
  if (rest.calls > 0) add(operations, rest);
  std::cerr << "\n" << fixed(whole, 1) << " s in all; evaluation has its own forward passes\n";
  phases.print(std::cerr);
  std::cerr << "\n";
  operations.print(std::cerr);
}

// What ran on the GPU, in shares of the whole time: what is missing from 100 % it spent waiting.
void print_device_profile(const std::vector<train::ProfileLine>& lines, double whole) {
  Table kernels({"on the GPU", "times", "seconds", "share"});
  train::ProfileLine rest{"the rest", 0, 0}, all{"in all", 0, 0};
  const auto add = [&](const train::ProfileLine& line) {
    kernels.add(
        {line.name, std::to_string(line.calls), fixed(line.seconds, 3), percent(line.seconds / whole, 1)});
  };
  for (size_t index = 0; index < lines.size(); ++index) {
    const train::ProfileLine& line = lines[index];
    if (index < 2 * kMostProfileLines)
      add(line);
    else
      rest.calls += line.calls, rest.seconds += line.seconds;
    all.calls += line.calls, all.seconds += line.seconds;
  }
  if (rest.calls > 0) add(rest);
  add(all);
  std::cerr << "\n";
  kernels.print(std::cerr);
}

// The recipe, where it is trained, and whether that goes on from what is there.
struct Start {
  train::Recipe recipe;
  std::filesystem::path folder;
  bool resume = false;
};

Start find_start(const TrainArguments& arguments) {
  const Place place = find_place(arguments);
  return {train::load_recipe(place.recipe, arguments.overrides), place.folder, arguments.resume};
}

// Of several processes the first one reads the recipe and chooses the folder. Processes that torchrun has
// started anew go on in the folder of the ones before.
Start find_start(const TrainArguments& arguments, train::Ranks& ranks) {
  constexpr const char* kWhat = "reading the recipe";
  Start start;
  std::string recipe, folder;
  if (ranks.is_first()) {
    const bool again = ranks.place().attempt > 0;
    folder = again ? ranks.remember("run_folder", arguments.run) : "";
    TrainArguments mine = arguments;
    if (!folder.empty()) {
      mine.run = folder;
      mine.resume = true;
    }
    start = find_start(mine);
    recipe = train::to_toml(start.recipe);
    folder = start.folder.string();
    ranks.remember("run_folder", folder);
    start.resume = mine.resume;
  }
  recipe = ranks.from_first(recipe, kWhat);
  start.folder = ranks.from_first(folder, kWhat);
  start.resume = ranks.from_first(start.resume ? "resume" : "", kWhat) == "resume";
  if (!ranks.is_first()) start.recipe = train::parse_recipe(recipe, "the recipe of rank 0");
  return start;
}

void print_summary(const train::RunSummary& summary, const tasks::Task& task) {
  const tasks::Metric &metric = task.metric(), &tested = *summary.test->metric;
  std::cout << summary.run_folder.string() << ": test " << (tested.is_share ? tested.words + " " : "")
            << shown(tested, summary.test->value()) << (tested.is_share ? "" : " " + tested.words)
            << ", loss " << fixed(summary.test->loss, 4) << ", density "
            << percent(summary.test->density.mean().item<double>()) << " (best validation "
            << shown(metric, summary.best.value_or(0)) << " at step " << summary.best_step << ", "
            << fixed(summary.seconds, 1) << " s)";
  for (const data::Baseline& baseline : task.baselines(data::Split::kTest))
    std::cout << "; " << baseline.name << " " << shown(metric, baseline.value);
  std::cout << "\n";
}

// ranks: null where the process trains alone. What is told is told by the first rank.
int train_run(const TrainArguments& arguments, const Start& start, train::Ranks* ranks) {
  const train::Recipe& recipe = start.recipe;
  const bool speaks = !ranks || ranks->is_first(), shows = speaks && !arguments.quiet;
  const tasks::TaskPtr task = train::open_task(recipe);
  train::TrainerOptions options;
  options.run_folder = start.folder;
  options.resume = start.resume;
  options.ranks = ranks;
  if (speaks && start.resume && !std::filesystem::exists(options.run_folder / "config.toml"))
    std::cerr << "nothing to resume in " << options.run_folder.string() << "; starting a new run\n";
  options.progress = shows;
  train::Trainer trainer(recipe, task, options);
  if (shows) print_settings(recipe, task->data(), trainer.model(), options.run_folder);
  if (shows && ranks) print_ranks(recipe, *ranks);
  std::optional<train::Profile> profile;
  std::optional<train::DeviceProfile> device_profile;
  if (speaks && arguments.profile) profile.emplace();
  if (speaks && arguments.profile && recipe.train.device.starts_with("cuda")) device_profile.emplace();
  const train::RunSummary summary = trainer.run();
  if (ranks) ranks->leave();
  if (profile) print_profile(*profile);
  if (device_profile) print_device_profile(device_profile->stop(), profile->seconds());
  if (summary.interrupted) {
    if (!speaks) return summary.exit_code();
    // Where the trainer shows progress it has said where it stopped, and what it saved.
    if (arguments.quiet) std::cerr << "stopped at step " << summary.steps << "; ";
    std::cerr << "continue with: edgewise train --resume " << options.run_folder.string() << "\n";
    return summary.exit_code();
  }
  if (speaks) print_summary(summary, *task);
  return 0;
}

int run(const TrainArguments& arguments) {
  if (arguments.help_recipe) {
    std::cout << train::recipe_help(*arguments.help_recipe == "markdown" ? train::HelpForm::kMarkdown
                                                                         : train::HelpForm::kText);
    return 0;
  }
  if (arguments.print_recipe) {
    std::cout << train::to_toml(find_start(arguments).recipe);
    return 0;
  }
  const std::optional<train::RankPlace> place = train::rank_place();
  if (!place) return train_run(arguments, find_start(arguments), nullptr);
  train::Ranks ranks(*place);
  try {
    return train_run(arguments, find_start(arguments, ranks), &ranks);
  } catch (const c10::Error& error) {
    ranks.fail(error.what_without_backtrace());
    throw;
  } catch (const std::exception& error) {
    ranks.fail(error.what());
    throw;
  }
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model from a recipe (one TOML file)");
  command->add_option("recipe", arguments->recipe,
                      "the recipe, e.g. recipes/demo/edgewise.toml; with --resume, a run folder will do");
  command->add_option("--run", arguments->run, "run folder; default runs/<recipe>/<next number>");
  command
      ->add_option("--set", arguments->overrides,
                   "override a key of the recipe, e.g. --set train.seed=3; repeat the flag for more")
      ->allow_extra_args(false);
  command->add_flag("--resume", arguments->resume,
                    "continue a run from its last checkpoint, bit for bit: train --resume RUN");
  command->add_flag("--quiet", arguments->quiet, "no progress, only the result");
  command->add_flag(
      "--profile", arguments->profile,
      "tell on stderr where the time went, by phase and by operation, and on a GPU by kernel; for "
      "a few hundred steps");
  command->add_flag("--print-recipe", arguments->print_recipe,
                    "print the recipe with every key of its kind of attention, as the run folder keeps it, "
                    "and stop");
  command
      ->add_option(
          "--help-recipe", arguments->help_recipe,
          "list every key of a recipe with its default, section by section; --help-recipe=markdown: as "
          "the tables of a page")
      ->expected(0, 1)
      ->default_str("text")
      ->check(CLI::IsMember({"text", "markdown"}));
  command->callback([&action, arguments] {
    check_usage(*arguments);
    action = [arguments] { return run(*arguments); };
  });
}

}  // namespace edgewise::app
