// edgewise compare: several runs in one table and one picture.
#include <c10/util/Exception.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/recipe.h>
#include <edgewise/train/svg_plot.h>

#include <filesystem>
#include <iostream>
#include <numeric>

#include "command.h"
#include "datasets.h"
#include "table.h"

namespace edgewise::app {
namespace {

struct CompareArguments {
  std::vector<std::string> runs;
  std::string svg;
};

struct Run {
  std::string name;
  train::Recipe recipe;
  train::Series loss, density, accuracy;
  double test_accuracy = -1, test_loss = -1, test_density = -1;
  int64_t steps = 0;
};

double number(const train::MetricRecord& record, const char* name) {
  const train::MetricValue* value = train::find_metric(record, name);
  if (!value) return -1;
  if (const auto* real = std::get_if<double>(value)) return *real;
  if (const auto* whole = std::get_if<int64_t>(value)) return static_cast<double>(*whole);
  if (const auto* list = std::get_if<std::vector<double>>(value); list && !list->empty())
    return std::accumulate(list->begin(), list->end(), 0.0) / static_cast<double>(list->size());
  return -1;
}

Run read_run(const std::string& folder) {
  std::filesystem::path path(folder);
  if (!path.has_filename()) path = path.parent_path();  // a trailing slash
  TORCH_CHECK_VALUE(std::filesystem::exists(path / "metrics.jsonl"), "compare: ", folder,
                    " is not a run folder (it has no metrics.jsonl)");
  Run run;
  // "edgewise" of runs/demo/edgewise, "listops 1" of runs/listops/1.
  run.name = path.filename().string();
  if (!run.name.empty() && std::isdigit(static_cast<unsigned char>(run.name[0])))
    run.name = path.parent_path().filename().string() + " " + run.name;
  run.recipe = train::load_recipe((path / "config.toml").string());
  run.loss.name = run.density.name = run.accuracy.name = run.name;
  for (const train::MetricRecord& record : train::read_metrics(path / "metrics.jsonl")) {
    const train::MetricValue* kind = train::find_metric(record, "kind");
    const std::string what = kind ? std::get<std::string>(*kind) : "";
    const double step = number(record, "step");
    if (what == "train") {
      run.loss.x.push_back(step);
      run.loss.y.push_back(number(record, "task_loss"));
      run.density.x.push_back(step);
      run.density.y.push_back(number(record, "density"));
      run.steps = static_cast<int64_t>(step);
    } else if (what == "eval") {
      run.accuracy.x.push_back(step);
      run.accuracy.y.push_back(number(record, "accuracy"));
    } else if (what == "test") {
      run.test_accuracy = number(record, "accuracy");
      run.test_loss = number(record, "loss");
      run.test_density = number(record, "density");
    }
  }
  return run;
}

int run(const CompareArguments& arguments) {
  std::vector<Run> runs;
  for (const std::string& folder : arguments.runs) runs.push_back(read_run(folder));
  Table table({"run", "steps", "test accuracy", "test loss", "density"});
  const auto or_dash = [](double value, const std::string& text) {
    return value < 0 ? std::string("-") : text;
  };
  for (const Run& r : runs)
    table.add({r.name, std::to_string(r.steps), or_dash(r.test_accuracy, percent(r.test_accuracy)),
               or_dash(r.test_loss, fixed(r.test_loss, 4)),
               or_dash(r.test_density, percent(r.test_density, 1))});
  std::vector<Baseline> beside;
  if (runs[0].recipe.data.name == "repeated_tokens")
    beside = baselines(*open_dataset(runs[0].recipe), data::Split::kTest);
  if (runs[0].recipe.data.name == "listops" && std::filesystem::exists(runs[0].recipe.data.path))
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
    bool poisson = false;
    for (const Run& r : runs) {
      loss.series.push_back(r.loss);
      density.series.push_back(r.density);
      accuracy.series.push_back(r.accuracy);
      const auto& attention = r.recipe.attention;
      if (attention.kind.find("sbm") != std::string::npos)
        poisson = poisson ||
                  attention.law.value_or(attention.preset == "paper" ? "poisson" : "bernoulli") == "poisson";
    }
    if (poisson) density.reference_lines.push_back({0.632, "1 - 1/e"});
    for (const Baseline& b : beside) accuracy.reference_lines.push_back({b.accuracy, b.name});
    io::write_file_atomically(arguments.svg, train::render_svg({loss, density, accuracy}));
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
