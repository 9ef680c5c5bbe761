// edgewise cost: FLOPs and memory of recipes, per example, beside dense attention.
#include <c10/util/Exception.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/model_cost.h>
#include <edgewise/train/progress.h>
#include <edgewise/train/recipe.h>
#include <edgewise/train/trainer.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <numeric>
#include <set>

#include "command.h"
#include "folders.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct CostArguments {
  std::vector<std::string> recipes, overrides;
  std::string run, device;
  std::optional<double> density;
  int64_t length = 0, batch = 1;
  bool operations = false, no_memory = false, json = false;
};

// The mean density of the run's test, or of its last validation before there is a test.
double density_of_run(const std::string& folder) {
  const std::filesystem::path file = std::filesystem::path(folder) / "metrics.jsonl";
  expect_run_folder(folder, "metrics.jsonl", "cost");
  std::optional<double> found;
  for (const train::MetricRecord& record : train::read_metrics(file)) {
    const train::MetricValue* kind = train::find_metric(record, "kind");
    const train::MetricValue* density = train::find_metric(record, "density");
    if (!kind || !density || std::get<std::string>(*kind) == "train") continue;
    const auto* heads = std::get_if<std::vector<double>>(density);
    if (!heads || heads->empty()) continue;
    found = std::accumulate(heads->begin(), heads->end(), 0.0) / static_cast<double>(heads->size());
  }
  TORCH_CHECK_VALUE(found, "cost: expected a validation or test with a density in ", file.string(),
                    "; found none yet. Give --density instead.");
  return *found;
}

std::string mega(double flops) {
  return fixed(flops / 1e6, flops < 1e7 ? 2 : 0);
}

// Nothing where the recipe cannot be counted, and why not.
std::optional<train::RecipeCost> cost_of(const train::Recipe& recipe, const train::CostOptions& options,
                                         std::string& why_not) {
  try {
    return train::recipe_cost(recipe, options);
  } catch (const c10::Error& error) {
    why_not = error.what_without_backtrace();
    return std::nullopt;
  }
}

train::ProgressOptions bar_of(size_t recipes) {
  train::ProgressOptions bar;
  bar.label = "cost";
  bar.total = static_cast<int64_t>(recipes);
  bar.unit = "recipe";
  bar.transient = true;
  return bar;
}

// What the figures of a recipe leave out, once each.
void add_notes(const train::Recipe& recipe, const std::string& name, const train::CostOptions& options,
               const train::RecipeCost& cost, std::set<std::string>& notes) {
  if (options.memory && options.density && cost.memory_density != cost.density)
    notes.insert("memory is of an untrained model, whatever the density: " + name + " has " +
                 percent(cost.memory_density) + " there");
  if (recipe.data.drop_masked && options.length == 0)
    notes.insert(name + " leaves out masked tokens (data.drop_masked): its sequences are shorter than n = " +
                 std::to_string(cost.length) +
                 ", and the density is of fewer pairs. Give their mean by --length (Pathfinder: 349)");
}

int run(const CostArguments& arguments) {
  train::CostOptions options;
  options.length = arguments.length;
  options.batch = arguments.batch;
  options.memory = !arguments.no_memory;
  options.density = arguments.density;
  if (!arguments.run.empty()) options.density = density_of_run(arguments.run);
  Table table({"recipe", "attention", "n", "density", "attention MFLOP", "of dense", "model MFLOP",
               "of dense", "memory", "of dense"});
  // Recipes of one task share their dense counterpart; it is measured once.
  std::map<std::string, train::RecipeCost> dense_costs;
  std::set<std::string> notes;
  size_t left_out = 0;
  train::Progress progress(bar_of(arguments.recipes.size()));
  int64_t done = 0;
  for (const std::string& file : arguments.recipes) {
    const train::Recipe recipe = train::load_recipe(file, arguments.overrides);
    options.device = train::parse_device(arguments.device.empty() ? recipe.train.device : arguments.device,
                                         "--device cpu");
    train::Recipe dense = train::dense_recipe(recipe);
    dense.train = train::TrainRecipe();  // of training, precision alone matters to the cost
    dense.train.precision = recipe.train.precision;
    const std::string key = train::to_toml(dense);
    const std::string name = std::filesystem::path(file).stem().string();
    std::string why_not;
    progress.update(done++, {{"recipe", name}});
    const auto counted = cost_of(recipe, options, why_not);
    if (counted && !dense_costs.count(key)) {
      progress.update(done - 1, {{"recipe", name + ", dense"}});
      dense_costs[key] = train::recipe_cost(dense, options);
    }
    if (arguments.json || arguments.operations) progress.hide();  // what is printed may share its terminal
    if (!counted) {
      ++left_out;
      if (arguments.json)
        std::cout << train::to_json_line({{"recipe", file},
                                          {"attention", train::describe_attention(recipe)},
                                          {"error", why_not}})
                  << "\n"
                  << std::flush;
      else
        progress.message(name + ": " + why_not);
      table.add({name, train::describe_attention(recipe), "-", "-", "not counted", "-", "-", "-", "-", "-"});
      continue;
    }
    const train::RecipeCost& cost = *counted;
    add_notes(recipe, name, options, cost, notes);
    const train::RecipeCost& full = dense_costs[key];
    const double attention_ratio = cost.attention_flops / full.attention_flops,
                 model_ratio = cost.model_flops / full.model_flops;
    const double memory = cost.memory_per_example.value_or(0),
                 memory_ratio = options.memory ? memory / *full.memory_per_example : 0;
    if (arguments.json) {
      train::MetricRecord record = {{"recipe", file},
                                    {"attention", train::describe_attention(recipe)},
                                    {"length", cost.length},
                                    {"density", cost.density},
                                    {"device", options.device.str()},
                                    {"batch", options.batch},
                                    {"attention_flops", cost.attention_flops},
                                    {"attention_flops_of_dense", attention_ratio},
                                    {"model_flops", cost.model_flops},
                                    {"model_flops_of_dense", model_ratio}};
      if (options.memory) {
        record.emplace_back("memory_bytes", memory);
        record.emplace_back("memory_of_dense", memory_ratio);
        record.emplace_back("memory_density", cost.memory_density);
      }
      std::cout << train::to_json_line(record) << "\n" << std::flush;
    } else if (arguments.operations) {
      std::cout << name << ", " << train::describe_attention(recipe)
                << ", one head of one layer, n = " << cost.length << "\n";
      Table operations({"operation", "multiply-adds", "million"});
      for (const Operation& operation : cost.attention)
        operations.add({operation.name, operation.formula, fixed(operation.multiply_adds / 1e6, 3)});
      operations.print(std::cout);
      std::cout << "\n" << std::flush;
    }
    table.add({name, train::describe_attention(recipe), std::to_string(cost.length), percent(cost.density),
               mega(cost.attention_flops), fixed(attention_ratio, 3), mega(cost.model_flops),
               fixed(model_ratio, 3), options.memory ? bytes(memory) : "-",
               options.memory ? fixed(memory_ratio, 3) : "-"});
  }
  progress.update(done);
  progress.finish();
  if (!arguments.json) table.print(std::cout);
  for (const std::string& note : notes) std::cerr << note << "\n";
  return left_out == arguments.recipes.size() ? 1 : 0;
}

}  // namespace

void add_cost(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<CostArguments>();
  CLI::App* command = app.add_subcommand(
      "cost", "FLOPs of a forward pass and memory of a training step, per example, beside dense attention");
  command->add_option("recipes", arguments->recipes, "recipes, e.g. recipes/lra/listops/*.toml")->required();
  CLI::Option* density =
      command
          ->add_option("--density", arguments->density, "share of pairs that are edges; default: as measured")
          ->check(number_between(0, 1));
  command->add_option("--run", arguments->run, "take the density from the last evaluation of this run")
      ->excludes(density);
  command->add_option("--length", arguments->length, "tokens; default: the recipe's")->check(whole_number(1));
  command->add_option("--batch", arguments->batch, "examples at once when memory is measured")
      ->capture_default_str()
      ->check(whole_number(1));
  command->add_option("--device", arguments->device, "cpu or cuda; default: the recipe's")
      ->check(one_of({"cpu", "cuda"}));
  command->add_option("--set", arguments->overrides, "override a key of the recipes")
      ->allow_extra_args(false);
  command->add_flag("--operations", arguments->operations, "every operation of a head with its formula");
  command->add_flag("--no-memory", arguments->no_memory,
                    "formulas only; runs nothing when a density is given");
  command->add_flag("--json", arguments->json, "one JSON object per recipe");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
