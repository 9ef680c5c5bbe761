// edgewise compare: several runs in one table and one picture.
#include <c10/util/Exception.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/plot/svg_plot.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/task_kinds.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "command.h"
#include "data/datasets.h"
#include "folders.h"
#include "report/seeds.h"
#include "runs.h"
#include "table.h"

namespace edgewise::app {
namespace {

struct CompareArguments {
  RunChoice runs;
  std::string svg;
  bool seeds = false;
};

using Groups = std::vector<std::vector<Run>>;  // of runs that differ in their seed; or one run each

// Mean and standard deviation over the runs of a group that have the figure.
template <typename Figure>
std::string spread(const std::vector<Run>& group, int digits, Figure figure) {
  std::vector<double> values;
  for (const Run& run : group)
    if (const std::optional<double> value = figure(run)) values.push_back(*value);
  return values.empty() ? "-" : show(spread_of(values), digits);
}
// The same of a figure of the test.
template <typename Figure>
std::string test_spread(const std::vector<Run>& group, int digits, Figure figure) {
  return spread(group, digits, [&](const Run& run) -> std::optional<double> {
    return run.test ? std::optional<double>(figure(*run.test)) : std::nullopt;
  });
}

// A group without the curve has an empty one without a name, so that colours agree from panel to panel.
void add_curve(train::Panel& panel, const std::vector<Run>& group, train::Series Run::*curve) {
  const train::Series mean = mean_curve(group, curve);
  panel.series.push_back(mean.x.empty() ? train::Series() : mean);
}

// Language models: bits per character, and what they cost.
// "2000", or "1500 to 2000" where seeds ended at different steps.
std::string steps_of(const std::vector<Run>& group) {
  const auto [least, most] = std::ranges::minmax(group, {}, &Run::steps);
  return std::to_string(least.steps) + (least.steps == most.steps ? "" : " to " + std::to_string(most.steps));
}

int compare_texts(const Groups& groups, const CompareArguments& arguments) {
  const std::string& unit = groups[0][0].bits_of;
  const std::string token = unit == "character" ? "character" : "token",
                    bits_per = unit == "character" ? "char" : unit;
  Table table({"run", "attention", "steps", "validation bits/" + bits_per, "test bits/" + bits_per,
               "test accuracy, %", "density, %", token + "s/s", "peak memory"});
  train::Panel loss{.title = "Training loss", .x_label = "step", .y_label = "nats per " + token};
  train::Panel density{.title = "Density of the edges", .x_label = "step", .y_label = "edges / causal pairs"};
  train::Panel bits{.title = "Validation", .x_label = "step", .y_label = "bits per " + unit};
  for (const std::vector<Run>& group : groups) {
    const Run& first = group[0];
    const double length = static_cast<double>(first.recipe.data.length);
    table.add({group_name(group), first.recipe.attention.kind, steps_of(group),
               spread(group, 4, [](const Run& r) { return r.best_bits; }),
               spread(group, 4, [](const Run& r) { return r.test ? r.test->bits : std::nullopt; }),
               spread(group, 2,
                      [](const Run& r) {
                        return r.test && r.test->right ? std::optional(100 * *r.test->right) : std::nullopt;
                      }),
               test_spread(group, 1, [](const TestFigures& test) { return 100 * test.mean_density(); }),
               spread(group, 0, [&](const Run& r) { return std::optional(r.examples_per_second * length); }),
               bytes(first.peak_memory_mb * 1048576)});
    add_curve(loss, group, &Run::loss);
    add_curve(density, group, &Run::density);
    add_curve(bits, group, &Run::bits);
  }
  table.print(std::cout);
  if (arguments.svg.empty()) return 0;
  io::write_file_atomically(arguments.svg, train::render_svg({loss, density, bits}));
  std::cerr << "curves: " << arguments.svg << "\n";
  return 0;
}

// Of the run's test set; none, with the reason on stderr, where other data has taken its place.
std::vector<data::Baseline> baselines_of(const Run& run) {
  std::string why_not;
  const tasks::TaskPtr task = task_of_run(run.data, run.folder.string(), run.recipe, why_not);
  if (!why_not.empty()) std::cerr << "no baselines: " << why_not << "\n";
  return task ? task->baselines(data::Split::kTest) : std::vector<data::Baseline>();
}

int run(const CompareArguments& arguments) {
  std::vector<Run> runs;
  for (const std::string& place : arguments.runs.places) {
    if (is_run_file(place)) {
      for (Run& run : read_run_file(place, "compare")) runs.push_back(std::move(run));
      continue;
    }
    expect_run_folder(place, "metrics.jsonl", "compare");
    runs.push_back(read_run(place, "compare"));
  }
  std::erase_if(runs, [&](const Run& r) { return !is_chosen(r, arguments.runs); });
  TORCH_CHECK_VALUE(!runs.empty(), "compare: expected at least one run; --only and --leave-out leave none");
  std::error_code is_in_file;
  for (size_t i = 0; i < runs.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      TORCH_CHECK_VALUE(runs[i].folder != runs[j].folder &&
                            !std::filesystem::equivalent(runs[i].folder, runs[j].folder, is_in_file),
                        "compare: expected different runs; got ", runs[i].folder.string(), " twice");
  const auto is_text = [](const Run& r) { return train::task_kind(r.recipe).is_causal; };
  const auto texts = std::ranges::count_if(runs, is_text);
  TORCH_CHECK_VALUE(texts == 0 || texts == std::ssize(runs),
                    "compare: expected language models, or runs of other tasks; got ", texts, " and ",
                    std::ssize(runs) - texts, " of them");
  Groups groups;
  if (arguments.seeds)
    groups = by_seed(runs);
  else
    for (const Run& r : runs) groups.push_back({r});
  if (texts > 0) return compare_texts(groups, arguments);
  const bool know_right = std::ranges::any_of(runs, [](const Run& r) { return !r.recall.x.empty(); });
  // Runs that are judged by several figures have their column in common.
  std::string judged = runs[0].judged_by;
  for (const Run& r : runs)
    if (judged.find(r.judged_by) == std::string::npos) judged += " or " + r.judged_by;
  std::vector<std::string> header = {"run", "steps", "test " + judged + ", %", "test loss", "density, %"};
  if (know_right) header.insert(header.end(), {"edge precision", "edge recall"});
  Table table(header);
  for (const std::vector<Run>& group : groups) {
    std::vector<std::string> row = {
        group_name(group), steps_of(group),
        test_spread(group, 2, [](const TestFigures& test) { return 100 * test.accuracy; }),
        test_spread(group, 4, [](const TestFigures& test) { return test.loss; }),
        test_spread(group, 1, [](const TestFigures& test) { return 100 * test.mean_density(); })};
    if (know_right) {
      row.push_back(spread(group, 3, [](const Run& r) { return r.test ? r.test->precision : std::nullopt; }));
      row.push_back(spread(group, 3, [](const Run& r) { return r.test ? r.test->recall : std::nullopt; }));
    }
    table.add(row);
  }
  const std::vector<data::Baseline> beside = baselines_of(runs[0]);
  for (const data::Baseline& b : beside) {
    std::vector<std::string> row = {"(" + b.name + ")", "-", fixed(100 * b.value, 2)};
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
    train::Panel accuracy{
        .title = "Validation " + runs[0].validated_by, .x_label = "step", .y_label = runs[0].validated_by};
    train::Panel precision{.title = "Chosen edges that are right", .x_label = "step", .y_label = "precision"};
    train::Panel recall{.title = "Right edges that are chosen",
                        .x_label = "step",
                        .y_label = "recall",
                        .y_range = std::pair(0.0, 1.05)};
    bool poisson = false;
    for (const std::vector<Run>& group : groups) {
      add_curve(loss, group, &Run::loss);
      add_curve(density, group, &Run::density);
      add_curve(accuracy, group, &Run::accuracy);
      add_curve(precision, group, &Run::precision);
      add_curve(recall, group, &Run::recall);
      const train::Recipe& recipe = group[0].recipe;
      if (train::attention_kind(recipe).reads("sbm"))
        poisson = poisson || train::sbm_options(recipe).law == EdgeLaw::kPoisson;
    }
    if (poisson) density.reference_lines.push_back({0.632, "1 - 1/e"});
    for (const data::Baseline& b : beside) accuracy.reference_lines.push_back({b.value, b.name});
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
  add_run_choice(*command, arguments->runs);
  command->add_option("--svg", arguments->svg, "draw loss, density and accuracy curves into this file");
  command->add_flag("--seeds", arguments->seeds,
                    "runs that differ in nothing but their seed become one: mean and standard deviation");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
