// edgewise report: one run as one HTML file that needs nothing beside it.
#include "report/report.h"

#include <c10/util/Exception.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/plot/svg_plot.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>

#include <filesystem>
#include <iostream>
#include <sstream>

#include "command.h"
#include "data/datasets.h"
#include "explore/report_part.h"
#include "folders.h"
#include "runs.h"
#include "table.h"
#include "train/run/run_folder.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct ReportArguments {
  std::string run, out;
  std::vector<std::string> overrides;
  PicturesOptions pictures;
};

constexpr const char* kStyle = R"(<style>
body { font: 15px/1.5 Inter, "Segoe UI", "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; color: #222; background: #fff;
       max-width: 1120px; margin: 32px auto; padding: 0 24px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 36px 0 8px; } h3 { font-size: 15px; margin: 20px 0 6px; }
p { color: #555; max-width: 80ch; }
table { border-collapse: collapse; } td, th { padding: 4px 18px 4px 0; text-align: left; border-bottom: 1px solid #e4e4e4; }
th { color: #555; font-weight: 600; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; }
pre { background: #f6f6f6; padding: 12px 16px; overflow-x: auto; font-size: 13px; line-height: 1.4; }
.row { display: flex; flex-wrap: wrap; gap: 14px; margin: 6px 0 14px; }
figure { margin: 0; width: 168px; } figure img { width: 168px; height: 168px; image-rendering: pixelated; border: 1px solid #ccc; }
#explorer { width: min(calc(100vw - 48px), 1500px); position: relative; left: 50%; transform: translateX(-50%); border: 1px solid #ccc;
  text-align: left; }
#explorer.explorer { height: 820px; }
figcaption { font-size: 12px; line-height: 1.35; color: #555; }
</style>
)";

// A report that is sent around stays below some megabytes.
constexpr size_t kMostGraphBytes = size_t{12} << 20;

using Rows = std::vector<std::pair<std::string, std::string>>;

std::string table_of(const Rows& rows) {
  std::string html = "<table>\n";
  for (const auto& [name, value] : rows)
    html += "<tr><th>" + html_escape(name) + "</th><td>" + html_escape(value) + "</td></tr>\n";
  return html + "</table>\n";
}

// `beside`: what needs no attention at all, if the data is at hand.
Rows summary_of(const Run& run, const std::vector<data::Baseline>& beside) {
  const train::Recipe& r = run.recipe;
  const bool is_sbm = train::attention_kind(r).reads("sbm");
  Rows rows = {{"task", r.data.name},
               {"attention", r.attention.kind + (is_sbm ? ", preset " + r.sbm.preset : "")},
               {"steps", std::to_string(run.steps) + " of " + std::to_string(r.train.steps) + ", batch " +
                             std::to_string(r.train.batch) + ", seed " + std::to_string(r.train.seed)}};
  if (is_sbm) {
    std::ostringstream edges;
    edges << train::sbm_options(r);
    rows.emplace_back("edges", edges.str());
  }
  if (!r.train.weights.empty()) rows.emplace_back("started from", shown_place(r.train.weights));
  if (r.train.average > 0)
    rows.emplace_back("weights", "averaged, train.average = " + fixed(r.train.average, 4));
  if (is_sbm)
    rows.emplace_back(
        "weight of the density penalty",
        fixed(r.train.density_weight, 4) +
            (r.train.density_start > 0 ? " from step " + std::to_string(r.train.density_start) : "") +
            (r.train.density_warmup > 0 ? ", rising over " + std::to_string(r.train.density_warmup) + " steps"
                                        : ""));
  if (run.test) {
    if (run.test->bits) rows.emplace_back("test bits per " + run.bits_of, fixed(*run.test->bits, 4));
    rows.emplace_back("test " + run.judged_by,
                      shown_figure(run.judged_by, run.test->accuracy) +
                          (run.is_best_look ? ", the best look at the test set, which validates here"
                           : r.train.average_last > 0 ? ", of the mean of the last validations' weights"
                                                      : ", of the checkpoint that was best on validation"));
    for (const data::Baseline& baseline : beside)
      rows.emplace_back(baseline.name, run.test->bits ? fixed(baseline.value, 4) : percent(baseline.value));
    rows.emplace_back("test loss", fixed(run.test->loss, 4));
    rows.emplace_back("test density", percent(run.test->mean_density()));
  } else {
    rows.emplace_back("test accuracy", "not evaluated yet");
  }
  if (run.is_validated())
    rows.emplace_back("best validation", run.validated_by + " " +
                                             shown_figure(run.validated_by, run.best_validation) +
                                             " at step " + std::to_string(run.best_step));
  if (r.data.validation == "test")
    rows.emplace_back("note", "the checkpoint was chosen on the test set, as published");
  if (run.examples_per_second > 0)
    rows.emplace_back("speed", fixed(run.examples_per_second, 0) + " examples/s in training (median)");
  if (run.peak_memory_mb > 0) rows.emplace_back("peak memory", bytes(run.peak_memory_mb * 1048576));
  return rows;
}

std::string curves_of(const Run& run) {
  train::Panel loss{.title = "Training loss", .x_label = "step", .y_label = "cross-entropy"};
  train::Panel accuracy{
      .title = "Validation " + run.validated_by, .x_label = "step", .y_label = run.validated_by};
  loss.series.push_back(run.loss);
  accuracy.series.push_back(run.accuracy);
  loss.series[0].name = accuracy.series[0].name = "";
  if (run.test && run.judged_by == run.validated_by)
    accuracy.reference_lines.push_back({run.test->accuracy, "test"});
  train::PlotOptions options;
  options.panel_width = 520;
  if (run.bits.x.empty()) return train::render_svg({loss, accuracy}, options);
  train::Panel bits{.title = "Validation", .x_label = "step", .y_label = "bits per " + run.bits_of};
  bits.series.push_back(run.bits);
  bits.series[0].name = "";
  if (run.test && run.test->bits) bits.reference_lines.push_back({*run.test->bits, "test"});
  return train::render_svg({loss, bits}, options);
}

std::string densities_of(const Run& run) {
  train::Panel panel{
      .title = "Density by layer and head, in training", .x_label = "step", .y_label = "edges / pairs"};
  panel.series = run.head_densities;
  train::PlotOptions options;
  options.panel_width = 760;
  options.panel_height = 340;
  std::string html = train::render_svg({panel}, options);
  if (!run.test || run.test->density.empty()) return html;
  const auto heads = static_cast<size_t>(run.recipe.model.heads);
  html += "<h3>On the test set</h3>\n<table>\n<tr><th></th>";
  for (size_t h = 0; h < heads; ++h) html += "<th class=\"n\">head " + std::to_string(h) + "</th>";
  html += "</tr>\n";
  for (size_t i = 0; i < run.test->density.size(); ++i) {
    if (i % heads == 0) html += "<tr><th>layer " + std::to_string(i / heads) + "</th>";
    html += "<td class=\"n\">" + percent(run.test->density[i]) + "</td>";
    if (i % heads == heads - 1) html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string file_block(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path))
    return "<p>There is no " + html_escape(path.filename().string()) + ".</p>\n";
  return "<pre>" + html_escape(io::read_file(path)) + "</pre>\n";
}

int run(const ReportArguments& arguments) {
  expect_run_folder(arguments.run, "metrics.jsonl", "report");
  const Run read = read_run(arguments.run, "report");
  const train::Recipe recipe =
      train::load_recipe((read.folder / "config.toml").string(), arguments.overrides);
  std::string no_data;
  const tasks::TaskPtr task = task_of_run(read.data, read.folder.string(), recipe, no_data);
  const std::vector<data::Baseline> beside =
      task ? task->baselines(data::Split::kTest) : std::vector<data::Baseline>();
  const bool has_edges = !read.head_densities.empty() &&
                         !train::attention_kind(recipe).make(recipe, recipe.model.max_length).is_dense();

  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>" +
                     html_escape(read.name) + "</title>\n" + kStyle + "</head>\n<body>\n<h1>" +
                     html_escape(read.name) + "</h1>\n" + table_of(summary_of(read, beside));
  html += "<h2>Curves</h2>\n" + curves_of(read);
  if (has_edges) html += "<h2>Densities</h2>\n" + densities_of(read);
  std::string why_not;
  const auto pictures = look_at_pictures(read.folder, recipe, arguments.pictures, why_not);
  if (pictures) {
    html +=
        "<h2>Where the heads look</h2>\n" + pictures_html(*pictures, recipe.data.name, recipe.model.heads);
  } else {
    std::cerr << "no pictures of the attention: " << why_not << "\n";
  }
  const std::string graphs = graphs_html(read.folder, kMostGraphBytes);
  if (graphs.empty())
    std::cerr << "no graphs: the run has no snapshots (train.snapshot_every)\n";
  else
    html += "<h2>The graphs that the heads chose</h2>\n" + graphs;
  html += "<h2>Settings</h2>\n" + file_block(read.folder / "config.toml");
  html += "<h2>Environment</h2>\n" + file_block(read.folder / "env.json") + "</body>\n</html>\n";
  if (arguments.out.empty()) train::refuse_links(read.folder);
  const std::filesystem::path out =
      arguments.out.empty() ? read.folder / "report.html" : std::filesystem::path(arguments.out);
  io::write_file_atomically(out, html);
  std::cout << out.string() << "\n";
  return 0;
}

}  // namespace

std::string html_escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

void add_report(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = app.add_subcommand("report", "Describe a run in one HTML file");
  command->add_option("run", arguments->run, "run folder")->required();
  command->add_option("--out", arguments->out, "the file; default: report.html in the run folder");
  command
      ->add_option("--look-at", arguments->pictures.look_at,
                   "image, pathfinder: test pictures to choose from")
      ->capture_default_str()
      ->check(whole_number(2));
  command->add_option("--show", arguments->pictures.show, "easy and hard pictures to show of each")
      ->capture_default_str()
      ->check(whole_number(1));
  command
      ->add_option("--set", arguments->overrides, "override a key of the run's recipe, e.g. data.path=FOLDER")
      ->allow_extra_args(false);
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
