// edgewise train: a recipe to a run folder.
#include <edgewise/train/build_model.h>
#include <edgewise/train/recipe.h>
#include <edgewise/train/trainer.h>

#include <filesystem>
#include <iostream>

#include "command.h"
#include "datasets.h"
#include "table.h"

namespace edgewise::app {
namespace {

struct TrainArguments {
  std::string recipe, run;
  std::vector<std::string> overrides;
  bool resume = false, quiet = false, help_recipe = false;
};

// runs/<recipe name>/<first free number>.
std::filesystem::path next_run_folder(const std::string& recipe) {
  const std::filesystem::path base = std::filesystem::path("runs") / std::filesystem::path(recipe).stem();
  for (int number = 1;; ++number)
    if (const auto folder = base / std::to_string(number); !std::filesystem::exists(folder)) return folder;
}

// Everything that defines the run, before step 0.
void print_settings(const train::Recipe& recipe, const data::Dataset& dataset, const Classifier& model,
                    const std::filesystem::path& folder) {
  int64_t parameters = 0;
  for (const auto& p : model.parameters()) parameters += p.numel();
  const auto& m = recipe.model;
  const auto& t = recipe.train;
  std::cerr << "run        " << folder.string() << "\n"
            << "data       " << dataset.name() << ", " << dataset.size(data::Split::kTrain) << " train, "
            << dataset.size(data::Split::kValidation) << " validation, " << dataset.size(data::Split::kTest)
            << " test\n"
            << "model      " << m.layers << " layers, " << m.heads << " heads of " << m.head_dim << ", "
            << parameters << " parameters\n"
            << "attention  " << recipe.attention.kind;
  if (recipe.attention.kind.find("sbm") != std::string::npos)
    std::cerr << " (" << recipe.attention.preset << "): " << train::sbm_options(recipe);
  std::cerr << "\ntraining   " << t.steps << " steps of " << t.batch << " (micro-batch " << t.micro_batch
            << "), learning rate " << t.learning_rate << " " << t.schedule << ", seed " << t.seed
            << ", device " << t.device << "\n";
}

int run(const TrainArguments& arguments) {
  if (arguments.help_recipe) {
    std::cout << train::recipe_help();
    return 0;
  }
  TORCH_CHECK_VALUE(!arguments.recipe.empty(), "train: expected a recipe, e.g. recipes/demo/edgewise.toml");
  const train::Recipe recipe = train::load_recipe(arguments.recipe, arguments.overrides);
  TORCH_CHECK_VALUE(!arguments.resume || !arguments.run.empty(),
                    "train --resume: name the run folder with --run");
  const auto dataset = open_dataset(recipe);
  train::TrainerOptions options;
  options.run_folder =
      arguments.run.empty() ? next_run_folder(arguments.recipe) : std::filesystem::path(arguments.run);
  options.resume = arguments.resume;
  if (arguments.resume && !std::filesystem::exists(options.run_folder / "config.toml"))
    std::cerr << "nothing to resume in " << options.run_folder.string() << "; starting a new run\n";
  options.progress = !arguments.quiet;
  train::Trainer trainer(recipe, dataset, options);
  if (!arguments.quiet) print_settings(recipe, *dataset, trainer.model(), options.run_folder);
  const train::RunSummary summary = trainer.run();
  if (summary.interrupted) {
    std::cerr << "stopped after step " << summary.steps << "; continue with: edgewise train "
              << arguments.recipe << " --run " << options.run_folder.string() << " --resume";
    for (const std::string& override_text : arguments.overrides)
      std::cerr << " --set '" << override_text << "'";
    std::cerr << "\n";
    return summary.exit_code();
  }
  std::cout << options.run_folder.string() << ": test accuracy " << percent(summary.test->accuracy)
            << ", loss " << fixed(summary.test->loss, 4) << ", density "
            << percent(summary.test->density.mean().item<double>()) << " (best validation "
            << percent(summary.best_accuracy.value_or(0)) << " at step " << summary.best_step << ", "
            << fixed(summary.seconds, 1) << " s)";
  for (const Baseline& baseline : baselines(*dataset, data::Split::kTest))
    std::cout << "; " << baseline.name << " " << percent(baseline.accuracy);
  std::cout << "\n";
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model from a recipe (one TOML file)");
  command->add_option("recipe", arguments->recipe, "the recipe, e.g. recipes/demo/edgewise.toml");
  command->add_option("--run", arguments->run, "run folder; default runs/<recipe>/<next number>");
  command
      ->add_option("--set", arguments->overrides,
                   "override a key of the recipe, e.g. --set train.seed=3; repeat the flag for more")
      ->allow_extra_args(false);
  command->add_flag("--resume", arguments->resume,
                    "continue the run in --run from its last checkpoint, bit for bit");
  command->add_flag("--quiet", arguments->quiet, "no progress, only the result");
  command->add_flag("--help-recipe", arguments->help_recipe, "list every key of a recipe with its default");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
