// edgewise compare: several runs in one table and one picture.
#include <edgewise/io/atomic_file.h>
#include <edgewise/train/svg_plot.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "command.h"
#include "datasets.h"
#include "runs.h"
#include "seeds.h"
#include "table.h"

namespace edgewise::app {
namespace {

struct CompareArguments {
  std::vector<std::string> runs;
  std::string svg;
  bool seeds = false;
};

// The test figures of a group that every run of it has: "98.30 % ± 0.30 (3)".
template <typename Figure>
std::string test_spread(const std::vector<Run>& group, int digits, Figure figure) {
  std::vector<double> values;
  for (const Run& run : group)
    if (const std::optional<double> value = run.test ? figure(*run.test) : std::nullopt)
      values.push_back(*value);
  return values.empty() ? "-" : show(spread_of(values), digits);
}

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
  std::vector<std::vector<Run>> groups;
  if (arguments.seeds)
    groups = by_seed(runs);
  else
    for (const Run& r : runs) groups.push_back({r});
  const bool know_right = std::ranges::any_of(runs, [](const Run& r) { return !r.recall.x.empty(); });
  std::vector<std::string> header = {"run", "steps", "test accuracy, %", "test loss", "density, %"};
  if (know_right) header.insert(header.end(), {"edge precision", "edge recall"});
  Table table(header);
  for (const std::vector<Run>& group : groups) {
    using F = const TestFigures&;
    using Value = std::optional<double>;
    std::vector<std::string> row = {
        group_name(group), std::to_string(group[0].steps),
        test_spread(group, 2, [](F test) -> Value { return 100 * test.accuracy; }),
        test_spread(group, 4, [](F test) -> Value { return test.loss; }),
        test_spread(group, 1, [](F test) -> Value { return 100 * test.mean_density(); })};
    if (know_right) {
      row.push_back(test_spread(group, 3, [](F test) { return test.precision; }));
      row.push_back(test_spread(group, 3, [](F test) { return test.recall; }));
    }
    table.add(row);
  }
  std::vector<Baseline> beside;
  const train::DataRecipe& first = runs[0].recipe.data;
  if (first.name == "repeated_tokens" || first.name == "associative_recall" ||
      std::filesystem::exists(first.path))
    beside = baselines(*open_dataset(runs[0].recipe), data::Split::kTest);
  for (const Baseline& b : beside) {
    std::vector<std::string> row = {"(" + b.name + ")", "-", fixed(100 * b.accuracy, 2)};
    row.resize(header.size(), "-");
    table.add(row);
  }
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
    for (const std::vector<Run>& group : groups) {
      // A group without the curve has an empty one without a name, so that colours agree from panel to panel.
      const auto add = [&](train::Panel& panel, train::Series Run::*curve) {
        const train::Series mean = mean_curve(group, curve);
        panel.series.push_back(mean.x.empty() ? train::Series() : mean);
      };
      add(loss, &Run::loss);
      add(density, &Run::density);
      add(accuracy, &Run::accuracy);
      add(precision, &Run::precision);
      add(recall, &Run::recall);
      const auto& attention = group[0].recipe.attention;
      if (attention.kind.find("sbm") != std::string::npos)
        poisson = poisson ||
                  attention.law.value_or(attention.preset == "paper" ? "poisson" : "bernoulli") == "poisson";
    }
    if (poisson) density.reference_lines.push_back({0.632, "1 - 1/e"});
    for (const Baseline& b : beside) accuracy.reference_lines.push_back({b.accuracy, b.name});
    std::vector<train::Panel> panels = {loss, density, accuracy};
    if (know_right) panels.insert(panels.end(), {precision, recall});
    io::write_file_atomically(arguments.svg, train::render_svg(panels, {.columns = 3}));
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
  command->add_flag("--seeds", arguments->seeds,
                    "runs that differ in nothing but their seed become one: mean and standard deviation");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
