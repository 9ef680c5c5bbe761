#include "report/lra_plots.h"

#include <edgewise/io/atomic_file.h>
#include <edgewise/plot/svg_plot.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <ranges>
#include <string_view>
#include <tuple>

#include "report/lra_paper.h"

namespace edgewise::app {
namespace {

using Rows = std::vector<const LraRow*>;

// The bars are standard deviations over seeds.
train::Series points_of(Rows rows, const std::string& name, std::optional<double> (LraRow::*place)() const) {
  std::ranges::sort(rows, {}, [&](const LraRow* row) { return (row->*place)().value_or(0); });
  train::Series series{.name = name, .marks = train::Marks::kPoints};
  for (const LraRow* row : rows) {
    const std::optional<double> x = (row->*place)();
    if (!x) continue;
    const Spread accuracy = spread_of(row->accuracy);
    series.x.push_back(*x);
    series.y.push_back(accuracy.mean);
    series.errors.push_back(accuracy.deviation);
    series.labels.push_back(row->is_sbm() && !row->is_random() ? lambda_label(*row) : "");
  }
  return series;
}

struct FamilyName {
  LraFamily family;
  const char* name;
};
constexpr FamilyName kDrawn[] = {
    {LraFamily::kEdges, "single edges"},       {LraFamily::kSquares, "squares of 16 x 16"},
    {LraFamily::kPublished, "published"},      {LraFamily::kPaper, "as the paper prints it"},
    {LraFamily::kRandomEdges, "random edges"}, {LraFamily::kRandomSquares, "random squares"}};

// A line joins what differs in its penalty alone: the training that has most penalties, of equals the one
// that is best on validation. The others are points apart.
void add_family(train::Panel& panel, const std::vector<LraRow>& rows, size_t task, const FamilyName& family,
                bool chosen_on_test, std::optional<double> (LraRow::*place)() const) {
  Rows all;
  std::map<std::string, int64_t> penalties;  // by training
  for (const LraRow& row : rows) {
    if (row.task != task || row.family != family.family || row.chosen_on_test != chosen_on_test) continue;
    if (!(row.*place)()) continue;
    all.push_back(&row);
    ++penalties[row.training];
  }
  if (all.empty()) return;
  const LraRow* best = *std::ranges::max_element(all, {}, [&](const LraRow* row) {
    return std::tuple(penalties.at(row->training), !row->is_variation, spread_of(row->validation).mean);
  });
  Rows joined, apart;
  for (const LraRow* row : all) (row->training == best->training ? joined : apart).push_back(row);
  const std::string name = family.name + std::string(chosen_on_test ? ", chosen on test" : "");
  train::Series line = points_of(joined, name, place);
  const bool is_ours = family.family == LraFamily::kEdges || family.family == LraFamily::kSquares;
  if (is_ours) line.marks = train::Marks::kLineAndPoints;
  panel.series.push_back(std::move(line));
  if (!apart.empty()) panel.series.push_back(points_of(apart, name + ", other training", place));
}

// Runs that have no test figure, stopped or under way, as they stood in their best validation.
train::Series untested_points(const std::vector<Run>& runs, size_t task) {
  train::Series series{.name = "no test yet: best validation", .marks = train::Marks::kPoints};
  for (const Run& run : runs) {
    if (run.test || run.is_its_start() || run.best_density < 0 || lra_task_of(run) != task) continue;
    if (run.recipe.attention.kind != "sbm") continue;
    series.x.push_back(100 * run.best_density);
    series.y.push_back(100 * run.best_validation);
    series.labels.push_back(run.name);
  }
  return series;
}

bool compares_with_paper(const std::vector<LraRow>& rows, size_t task) {
  return std::ranges::none_of(rows, [&](const LraRow& row) { return row.task == task && row.of_other_data; });
}

train::Series paper_points(size_t task) {
  train::Series series{.name = "the paper's SBM", .marks = train::Marks::kPoints};
  for (const PaperSbm& paper : kPaperSbm) {
    LraRow label;
    label.penalty = paper.penalty;
    label.self_loops = paper.self_loops;
    series.x.push_back(paper.density[task]);
    series.y.push_back(paper.accuracy[task]);
    series.labels.push_back(lambda_label(label));
  }
  return series;
}

void add_dense(train::Panel& panel, const std::vector<LraRow>& rows, size_t task) {
  for (const LraRow& row : rows)
    if (row.task == task && row.family == LraFamily::kDense && !row.chosen_on_test)
      panel.reference_lines.push_back({spread_of(row.accuracy).mean, "dense, ours"});
}

void write(const std::filesystem::path& file, const train::Panel& panel) {
  train::PlotOptions options;
  options.panel_width = 640;
  options.panel_height = 420;
  std::filesystem::create_directories(file.parent_path());
  io::write_file_atomically(file, train::render_svg({panel}, options));
  std::cerr << "plot: " << file.string() << "\n";
}

}  // namespace

void draw_task(const std::vector<LraRow>& rows, const std::vector<Run>& runs, size_t task, double first_token,
               const std::filesystem::path& folder) {
  const bool comparable = compares_with_paper(rows, task);
  const std::string title = kLraTasks[task].title;
  train::Panel density{
      .title = title + ": accuracy over density" + (comparable ? "" : ", not the paper's data"),
      .x_label = "density, % of valid pairs (labels: lambda; bars: standard deviation)",
      .y_label = "test accuracy, %",
      .log_x = true};
  train::Panel time{.title = title + ": accuracy over the time of a training step",
                    .x_label = "ms a step, measured alone (labels: lambda; bars: standard deviation)",
                    .y_label = "test accuracy, %",
                    .log_x = true};
  for (const FamilyName& family : kDrawn)
    for (const bool chosen_on_test : {false, true}) {
      add_family(density, rows, task, family, chosen_on_test, &LraRow::density);
      add_family(time, rows, task, family, chosen_on_test, &LraRow::step);
    }
  add_family(time, rows, task, {LraFamily::kDense, "dense"}, false, &LraRow::step);
  if (train::Series series = untested_points(runs, task); !series.x.empty()) {
    density.series.push_back(std::move(series));
    density.y_label = "accuracy, %";
  }
  if (density.series.empty()) return;
  if (comparable) {
    density.series.push_back(paper_points(task));
    density.reference_lines.push_back({kPaperAttentions[0].accuracy[task], "dense, paper"});
  }
  add_dense(density, rows, task);
  if (std::string_view(kLraTasks[task].name) == "listops")
    density.reference_lines.push_back({first_token, "first token"});
  write(folder / (std::string(kLraTasks[task].name) + ".svg"), density);
  if (!time.series.empty()) write(folder / (std::string(kLraTasks[task].name) + "-time.svg"), time);
}

}  // namespace edgewise::app
