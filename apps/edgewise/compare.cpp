// edgewise compare: several runs in one table and one picture.
#include <edgewise/io/atomic_file.h>
#include <edgewise/train/svg_plot.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "command.h"
#include "datasets.h"
#include "runs.h"
#include "table.h"

namespace edgewise::app {
namespace {

struct CompareArguments {
  std::vector<std::string> runs;
  std::string svg;
};

// Language models: bits per character, and what they cost.
int compare_texts(const std::vector<Run>& runs, const CompareArguments& arguments) {
  Table table({"run", "attention", "steps", "validation bits/char", "test bits/char", "test accuracy",
               "density", "characters/s", "peak memory"});
  train::Panel loss{.title = "Training loss", .x_label = "step", .y_label = "nats per character"};
  train::Panel density{.title = "Density of the edges", .x_label = "step", .y_label = "edges / causal pairs"};
  train::Panel bits{.title = "Validation", .x_label = "step", .y_label = "bits per character"};
  for (const Run& r : runs) {
    const double speed = r.examples_per_second * static_cast<double>(r.recipe.data.length);
    table.add({r.name, r.recipe.attention.kind, std::to_string(r.steps),
               r.best_bits ? fixed(*r.best_bits, 4) : "-",
               r.test && r.test->bits ? fixed(*r.test->bits, 4) : "-",
               r.test ? percent(r.test->accuracy) : "-", r.test ? percent(r.test->mean_density(), 1) : "-",
               fixed(speed, 0), bytes(r.peak_memory_mb * 1048576)});
    loss.series.push_back(r.loss);
    density.series.push_back(r.density);
    bits.series.push_back(r.bits);
  }
  table.print(std::cout);
  if (arguments.svg.empty()) return 0;
  io::write_file_atomically(arguments.svg, train::render_svg({loss, density, bits}));
  std::cerr << "curves: " << arguments.svg << "\n";
  return 0;
}

int run(const CompareArguments& arguments) {
  std::vector<Run> runs;
  for (const std::string& folder : arguments.runs) runs.push_back(read_run(folder, "compare"));
  if (std::ranges::any_of(runs, [](const Run& r) { return !r.bits.x.empty(); }))
    return compare_texts(runs, arguments);
  Table table({"run", "steps", "test accuracy", "test loss", "density"});
  for (const Run& r : runs)
    table.add({r.name, std::to_string(r.steps), r.test ? percent(r.test->accuracy) : "-",
               r.test ? fixed(r.test->loss, 4) : "-", r.test ? percent(r.test->mean_density(), 1) : "-"});
  std::vector<Baseline> beside;
  const train::DataRecipe& first = runs[0].recipe.data;
  if (first.name == "repeated_tokens" || first.name == "associative_recall" ||
      std::filesystem::exists(first.path))
    beside = baselines(*open_dataset(runs[0].recipe), data::Split::kTest);
  for (const Baseline& b : beside) table.add({"(" + b.name + ")", "-", percent(b.accuracy), "-", "-"});
  table.print(std::cout);

  if (!arguments.svg.empty()) {
    train::Panel loss{.title = "Training loss", .x_label = "step", .y_label = "cross-entropy", .log_y = true};
    train::Panel density{.title = "Density of the sampled edges",
                         .x_label = "step",
                         .y_label = "edges / pairs",
                         .y_range = std::pair(0.0, 1.05)};
    train::Panel accuracy{.title = "Validation accuracy", .x_label = "step", .y_label = "accuracy"};
    train::Panel precision{.title = "Chosen edges that are right", .x_label = "step", .y_label = "precision"};
    train::Panel recall{.title = "Right edges that are chosen",
                        .x_label = "step",
                        .y_label = "recall",
                        .y_range = std::pair(0.0, 1.05)};
    bool poisson = false;
    for (const Run& r : runs) {
      loss.series.push_back(r.loss);
      density.series.push_back(r.density);
      accuracy.series.push_back(r.accuracy);
      if (!r.precision.x.empty()) precision.series.push_back(r.precision);
      if (!r.recall.x.empty()) recall.series.push_back(r.recall);
      const auto& attention = r.recipe.attention;
      if (attention.kind.find("sbm") != std::string::npos)
        poisson = poisson ||
                  attention.law.value_or(attention.preset == "paper" ? "poisson" : "bernoulli") == "poisson";
    }
    if (poisson) density.reference_lines.push_back({0.632, "1 - 1/e"});
    for (const Baseline& b : beside) accuracy.reference_lines.push_back({b.accuracy, b.name});
    std::vector<train::Panel> panels = {loss, density, accuracy};
    if (!precision.series.empty()) panels.push_back(precision);
    if (!recall.series.empty()) panels.push_back(recall);
    io::write_file_atomically(arguments.svg, train::render_svg(panels));
    std::cerr << "curves: " << arguments.svg << "\n";
  }
  return 0;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<CompareArguments>();
  CLI::App* command = app.add_subcommand("compare", "Put runs side by side: a table, and curves as SVG");
  command->add_option("runs", arguments->runs, "run folders")->required();
  command->add_option("--svg", arguments->svg, "draw loss, density and accuracy curves into this file");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
