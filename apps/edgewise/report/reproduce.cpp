// edgewise reproduce lra: run folders as the SBM paper's Tables 1, 8 and 9, our figures beside the paper's,
// and a plot of accuracy over density for each task.
#include <c10/util/Exception.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/plot/svg_plot.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <ranges>
#include <set>
#include <tuple>

#include "command.h"
#include "data/datasets.h"
#include "folders.h"
#include "report/lra_paper.h"
#include "report/seeds.h"
#include "runs.h"
#include "table.h"

namespace edgewise::app {
namespace {

struct ReproduceArguments {
  RunChoice runs;
  std::string svg;
};

// Runs that differ in their seed only.
struct Group {
  size_t task = 0;
  std::string kind;    // attention.kind
  std::string preset;  // of an SBM, else empty
  double penalty = 0;
  bool rises = false;  // the penalty, by train.density_start or density_warmup
  bool self_loops = false;
  int64_t steps = 0, batch = 0;
  bool chosen_on_test = false, of_other_data = false, has_start = false, is_variation = false;
  std::string training;  // what runs of other penalties and seeds may share
  std::vector<double> accuracy, density, validation;

  double examples() const { return static_cast<double>(steps * batch); }
  bool is_sbm() const { return train::attention_kind(kind).reads("sbm"); }
};

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string lambda_label(double penalty, bool self_loops) {
  return short_number(penalty) + (self_loops ? " + I" : "");
}

// kLraTasks.size() of a run of another task.
size_t task_index(const Run& run) {
  return static_cast<size_t>(std::ranges::find(kLraTasks, run.recipe.data.name, &LraTask::name) -
                             kLraTasks.begin());
}

bool penalty_rises(const train::Recipe& recipe) {
  return recipe.train.density_start > 0 || recipe.train.density_warmup > 0;
}

// Whether its edges are chosen, learned or drawn otherwise than the preset has it, or tokens are hidden from
// it: what was tried beside the method.
bool is_variation(const train::Recipe& recipe) {
  const train::SbmRecipe& sbm = recipe.sbm;
  const bool has_window = train::attention_kind(recipe).reads("window");
  return recipe.train.edge_rate != 1 || recipe.train.eval_draws != 1 || recipe.model.token_dropout > 0 ||
         has_window || sbm.clusters || sbm.cluster_std || sbm.law || sbm.exploration || sbm.estimator ||
         sbm.probe_rate || sbm.probes_per_row;
}

// Of a run that was killed, steps are known to the last record.
bool stopped_early(const Run& run) {
  return run.steps + std::max<int64_t>(run.recipe.train.log_every, 1) <= run.recipe.train.steps;
}

// Than the task's official ones, by the size of the test set that the run has noted.
bool of_other_data(const Run& run) {
  const auto noted = nlohmann::json::parse(run.data, nullptr, /*allow_exceptions=*/false);
  return noted.is_object() && noted.value("test", int64_t{0}) != kLraTasks[task_index(run)].test_size;
}

// As its recipe asks for, and so complete.
bool ended_by_patience(const Run& run) {
  const int64_t patience = run.recipe.train.patience;
  return run.test && stopped_early(run) && patience > 0 && run.validations_since_best >= patience;
}

std::vector<Group> group_runs(const std::vector<Run>& runs) {
  std::map<std::string, Group> groups;  // by everything but the seed
  std::map<std::string, std::string> seen;
  for (const Run& run : runs) {
    if (!run.test) continue;
    if (run.is_its_start()) {
      std::cerr << run.folder.string() << " was never better than the weights it began with ("
                << shown_place(run.recipe.train.weights)
                << "), so its test is theirs; left out of the tables\n";
      continue;
    }
    const std::string recipe = recipe_but_seed(run);
    const auto [first, is_new] =
        seen.emplace(recipe + " seed " + std::to_string(run.recipe.train.seed), run.folder.string());
    if (!is_new) {
      std::cerr << run.folder.string() << " repeats recipe and seed of " << first->second
                << "; left out of the means\n";
      continue;
    }
    Group& group = groups[recipe];
    group.task = task_index(run);
    group.kind = run.recipe.attention.kind;
    if (group.is_sbm()) {
      group.preset = run.recipe.sbm.preset;
      group.self_loops = train::sbm_options(run.recipe).self_loops;
      group.penalty = run.recipe.train.density_weight;
      group.rises = group.penalty > 0 && penalty_rises(run.recipe);
    }
    const int64_t steps = stopped_early(run) ? run.steps : run.recipe.train.steps;
    group.steps = group.accuracy.empty() ? steps : std::min(group.steps, steps);
    group.batch = run.recipe.train.batch;
    group.chosen_on_test = run.recipe.data.validation == "test";
    group.of_other_data = group.of_other_data || of_other_data(run);
    group.has_start = !run.recipe.train.weights.empty();
    group.is_variation = is_variation(run.recipe);
    Run same = run;
    same.recipe.train.density_weight = 0;
    group.training = recipe_but_seed(same);
    group.accuracy.push_back(100 * run.test->accuracy);
    group.density.push_back(100 * run.test->mean_density());
    group.validation.push_back(100 * run.best_validation);
  }
  std::vector<Group> result;
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  return result;
}

// "39.93 ± 0.77 (3)*": what the marks say stands below Table 1.
std::string show_accuracy(const Group* group) {
  if (!group) return "-";
  const bool is_short = group->examples() < kLraTasks[group->task].published_examples;
  return show(spread_of(group->accuracy)) + (is_short ? "*" : "") + (group->chosen_on_test ? "†" : "") +
         (group->of_other_data ? "‡" : "") + (group->has_start ? "§" : "") + (group->is_variation ? "¶" : "");
}

std::string show_both(const Group* group) {
  return group ? show_accuracy(group) + " @ " + fixed(spread_of(group->density).mean, 2) : "-";
}

// Of the groups that fit, the best on validation; of equals the one that was trained longest. A variation, or
// where the test set took the place of validation, only if there is no other.
template <typename Fits>
const Group* pick(const std::vector<Group>& groups, Fits fits) {
  const Group* best = nullptr;
  for (const Group& group : groups) {
    if (!fits(group)) continue;
    const auto rank = [](const Group& g) {
      return std::tuple(!g.is_variation, !g.chosen_on_test, spread_of(g.validation).mean, g.examples());
    };
    if (!best || rank(group) > rank(*best)) best = &group;
  }
  return best;
}

std::vector<std::string> task_header(const char* first) {
  std::vector<std::string> header = {first};
  for (const LraTask& task : kLraTasks) {
    header.push_back(task.title);
    header.push_back("paper");
  }
  return header;
}

// A row of our figures beside the paper's; `ours` finds our group for a task.
template <typename Ours, typename Show>
void add_row(Table& table, const std::string& title, Ours ours, Show show_group, const LraFigures* paper,
             const LraFigures* paper_density = nullptr) {
  std::vector<std::string> row = {title};
  bool any = paper != nullptr;
  for (size_t task = 0; task < kLraTasks.size(); ++task) {
    const Group* group = ours(task);
    any = any || group != nullptr;
    row.push_back(show_group(group));
    std::string theirs = paper ? fixed((*paper)[task], 2) : "-";
    if (paper_density) theirs += " @ " + fixed((*paper_density)[task], 2);
    row.push_back(theirs);
  }
  if (any) table.add(row);
}

void print_table_1(const std::vector<Group>& groups) {
  std::cout << "Table 1. Test accuracy in %, mean ± standard deviation (seeds) of our runs beside the "
               "paper's figure.\n";
  Table table(task_header("attention"));
  for (const PaperAttention& paper : kPaperAttentions) {
    add_row(
        table, paper.title,
        [&](size_t task) {
          return pick(groups, [&](const Group& g) { return g.task == task && g.kind == paper.kind; });
        },
        show_accuracy, &paper.accuracy);
  }
  for (const char* preset : {"published", "paper", "edgewise"}) {
    const bool is_ours = std::string_view(preset) == "edgewise";
    add_row(
        table, std::string("SBM, ") + preset,
        [&](size_t task) {
          // The paper's row has no penalty; of theirs without one, or of ours, the best on validation.
          const auto fits = [&](const Group& g) {
            return g.task == task && g.preset == preset && !g.self_loops;
          };
          const Group* plain = pick(groups, [&](const Group& g) { return fits(g) && g.penalty == 0; });
          return plain && !is_ours ? plain : pick(groups, fits);
        },
        [&](const Group* g) {
          const bool tell = g && g->penalty > 0;
          return show_accuracy(g) + (tell ? ", lambda " + short_number(g->penalty) : "");
        },
        is_ours ? nullptr : &kPaperSbm[0].accuracy);
  }
  table.print(std::cout);
}

void print_table_8(const std::vector<Group>& groups) {
  std::cout << "\nTable 8. SBM without a penalty, and with every token attending to itself (+ I): accuracy @ "
               "density in %.\n";
  Table table(task_header("SBM, lambda = 0"));
  for (const bool loops : {false, true}) {
    for (const char* preset : {"published", "paper", "edgewise"}) {
      const PaperSbm& paper = loops ? kPaperSbm[5] : kPaperSbm[0];
      const bool is_theirs = std::string_view(preset) == "published";
      add_row(
          table, std::string(preset) + (loops ? " + I" : ""),
          [&](size_t task) {
            return pick(groups, [&](const Group& g) {
              return g.task == task && g.preset == preset && g.self_loops == loops && g.penalty == 0;
            });
          },
          show_both, is_theirs ? &paper.accuracy : nullptr, is_theirs ? &paper.density : nullptr);
    }
  }
  table.print(std::cout);
}

void print_table_9(const std::vector<Group>& groups) {
  std::cout << "\nTable 9. SBM by the weight lambda of the density penalty: accuracy @ density in %.\n";
  Table table(task_header("SBM, lambda"));
  for (const char* preset : {"published", "paper", "edgewise"}) {
    const bool is_theirs = std::string_view(preset) == "published";
    // Whether they rise; of ours, whether the test set chose, which has a row of its own: the paper's Text.
    std::vector<std::tuple<double, bool, bool>> penalties;
    for (const PaperSbm& paper : kPaperSbm) {
      if (!paper.self_loops && is_theirs) penalties.emplace_back(paper.penalty, false, false);
    }
    const bool by_choice = std::string_view(preset) == "edgewise";
    const auto chosen_apart = [&](const Group& g) { return by_choice && g.chosen_on_test; };
    for (const Group& g : groups) {
      if (g.preset == preset) penalties.emplace_back(g.penalty, g.rises, chosen_apart(g));
    }
    std::ranges::sort(penalties);
    penalties.erase(std::unique(penalties.begin(), penalties.end()), penalties.end());
    for (const auto& [penalty, rises, chosen] : penalties) {
      const PaperSbm* paper = nullptr;
      for (const PaperSbm& row : kPaperSbm) {
        if (is_theirs && !row.self_loops && row.penalty == penalty && !rises) paper = &row;
      }
      add_row(
          table,
          std::string(preset) + ", " + short_number(penalty) + (rises ? ", rising" : "") +
              (chosen ? ", chosen on test" : ""),
          [&, penalty = penalty, rises = rises, chosen = chosen](size_t task) {
            return pick(groups, [&](const Group& g) {
              return g.task == task && g.preset == preset && !g.self_loops && g.penalty == penalty &&
                     g.rises == rises && chosen_apart(g) == chosen;
            });
          },
          show_both, paper ? &paper->accuracy : nullptr, paper ? &paper->density : nullptr);
    }
  }
  table.print(std::cout);
}

std::string remarks(const Run& run) {
  std::string text = ended_by_patience(run) ? "no better from step " + std::to_string(run.best_step) + " on"
                     : stopped_early(run)   ? "stopped at step " + std::to_string(run.steps)
                     : !run.test            ? "not tested"
                                            : "";
  const auto add = [&](const std::string& remark) { text += (text.empty() ? "" : "; ") + remark; };
  if (run.test && run.recipe.data.validation == "test")
    add(run.is_best_look ? "the best look at the test set, as published"
                         : "checkpoint chosen on the test set, as published");
  if (of_other_data(run)) add("other data than the paper's");
  if (run.recipe.train.average > 0) add("average " + short_number(run.recipe.train.average));
  if (run.recipe.model.dropout != train::ModelRecipe().dropout)
    add("dropout " + short_number(run.recipe.model.dropout));
  const train::SbmRecipe& sbm = run.recipe.sbm;
  if (run.recipe.train.edge_rate != 1) add("train.edge_rate = " + short_number(run.recipe.train.edge_rate));
  if (run.recipe.train.eval_draws != 1)
    add("train.eval_draws = " + std::to_string(run.recipe.train.eval_draws));
  if (sbm.cluster_std) add("cluster_std = " + short_number(*sbm.cluster_std));
  if (sbm.probe_rate) add("probe_rate = " + short_number(*sbm.probe_rate));
  if (train::attention_kind(run.recipe).reads("window"))
    add("window " + std::to_string(run.recipe.window.width));
  if (run.recipe.data.symmetries != "none") add("data.symmetries = " + run.recipe.data.symmetries);
  if (run.recipe.model.token_dropout > 0)
    add("model.token_dropout = " + short_number(run.recipe.model.token_dropout));
  if (!run.recipe.train.weights.empty())
    add((run.is_its_start() ? "figures of its start, " : "started from ") +
        shown_place(run.recipe.train.weights));
  return text;
}

void print_runs(const std::vector<Run>& runs) {
  std::cout << "\nRuns\n";
  Table table({"run", "task", "attention", "lambda", "seed", "steps x batch", "rate", "validation", "test",
               "density", "remarks"});
  for (const Run& run : runs) {
    const bool is_sbm = train::attention_kind(run.recipe).reads("sbm");
    table.add(
        {run.name, run.recipe.data.name,
         run.recipe.attention.kind + (is_sbm ? ", " + run.recipe.sbm.preset : ""),
         is_sbm ? short_number(run.recipe.train.density_weight) + (penalty_rises(run.recipe) ? " rising" : "")
                : "-",
         std::to_string(run.recipe.train.seed),
         std::to_string(run.recipe.train.steps) + " x " + std::to_string(run.recipe.train.batch),
         short_number(run.recipe.train.learning_rate),
         !run.is_validated() ? "-" : percent(run.best_validation),
         run.test ? percent(run.test->accuracy) : "-",
         run.test                ? percent(run.test->mean_density())
         : run.best_density >= 0 ? percent(run.best_density) + " (validation)"
                                 : "-",
         remarks(run)});
  }
  table.print(std::cout);
  std::cout
      << "Validation and density are those of the best checkpoint, which is the one that is tested. A lambda "
         "that "
         "rises begins late or grows (train.density_start, density_warmup). \"No better from step N on\": "
         "train.patience ended the run.\n";
}

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

train::Series points_of(const std::vector<const Group*>& groups, const std::string& name) {
  train::Series series;
  series.name = name;
  series.marks = train::Marks::kPoints;
  std::vector<std::pair<double, const Group*>> sorted;
  for (const Group* g : groups) sorted.emplace_back(spread_of(g->density).mean, g);
  std::ranges::sort(sorted);
  for (const auto& [density, group] : sorted) {
    series.x.push_back(density);
    series.y.push_back(spread_of(group->accuracy).mean);
    series.labels.push_back(lambda_label(group->penalty, group->self_loops));
  }
  return series;
}

// A line joins what differs in its penalty alone: the training that has most penalties, of equals the one
// that is best on validation. The others are points apart.
std::vector<train::Series> series_of(const std::vector<Group>& groups, size_t task, const std::string& preset,
                                     bool rises, bool chosen_on_test) {
  const auto fits = [&](const Group& g) {
    return g.task == task && g.preset == preset && g.rises == rises && g.chosen_on_test == chosen_on_test;
  };
  std::map<std::string, int64_t> penalties;  // by training
  for (const Group& g : groups)
    if (fits(g)) ++penalties[g.training];
  if (penalties.empty()) return {};
  const int64_t most = std::ranges::max(std::views::values(penalties));
  const Group* best =
      pick(groups, [&](const Group& g) { return fits(g) && penalties.at(g.training) == most; });
  const std::string name =
      "ours, " + preset + (rises ? ", rising lambda" : "") + (chosen_on_test ? ", chosen on test" : "");
  std::vector<const Group*> joined, apart;
  for (const Group& g : groups)
    if (fits(g)) (g.training == best->training ? joined : apart).push_back(&g);
  std::vector<train::Series> result = {points_of(joined, name)};
  if (preset == "edgewise") result[0].marks = train::Marks::kLineAndPoints;
  if (!apart.empty()) result.push_back(points_of(apart, name + ", other training"));
  return result;
}
bool is_untested_sbm(const Run& run, size_t task) {
  return !run.test && !run.is_its_start() && run.best_density >= 0 && task_index(run) == task &&
         train::attention_kind(run.recipe).reads("sbm");
}

// Runs that have no test figure, stopped or under way, as they stood in their best validation.
train::Series untested_points(const std::vector<Run>& runs, size_t task) {
  train::Series series;
  series.name = "ours, no test yet: best validation";
  series.marks = train::Marks::kPoints;
  for (const Run& run : runs) {
    if (!is_untested_sbm(run, task)) continue;
    series.x.push_back(100 * run.best_density);
    series.y.push_back(100 * run.best_validation);
    series.labels.push_back(
        run.recipe.sbm.preset + " " +
        lambda_label(run.recipe.train.density_weight, train::sbm_options(run.recipe).self_loops));
  }
  return series;
}

// Accuracy over density, ours and the paper's.
std::string plot(const std::vector<Group>& groups, const std::vector<Run>& runs, size_t task,
                 double first_token) {
  train::Panel panel;
  const bool comparable =
      std::ranges::none_of(groups, [&](const Group& g) { return g.task == task && g.of_other_data; });
  panel.title = std::string(kLraTasks[task].title) + ": accuracy over density (labels: lambda)" +
                (comparable ? "" : ", not the paper's data");
  panel.x_label = "density of the edges, %";
  panel.y_label = "test accuracy, %";
  panel.log_x = true;
  train::Series paper;
  paper.name = "paper's SBM";
  paper.marks = train::Marks::kPoints;
  for (const PaperSbm& row : kPaperSbm) {
    if (!comparable) break;
    paper.x.push_back(row.density[task]);
    paper.y.push_back(row.accuracy[task]);
    paper.labels.push_back(lambda_label(row.penalty, row.self_loops));
  }
  if (!comparable) paper.name.clear();
  panel.series.push_back(std::move(paper));  // first, empty or not: the same colours in every plot
  for (const char* preset : {"edgewise", "published", "paper"}) {
    for (const bool rises : {false, true})
      for (const bool chosen_on_test : {false, true})
        for (train::Series& series : series_of(groups, task, preset, rises, chosen_on_test))
          panel.series.push_back(std::move(series));
  }
  if (train::Series series = untested_points(runs, task); !series.x.empty()) {
    panel.series.push_back(std::move(series));
    panel.y_label = "accuracy, %";
  }
  if (comparable) panel.reference_lines.push_back({kPaperAttentions[0].accuracy[task], "full, paper"});
  if (const Group* dense =
          pick(groups, [&](const Group& g) { return g.task == task && g.kind == kPaperAttentions[0].kind; }))
    panel.reference_lines.push_back({spread_of(dense->accuracy).mean, "full, ours"});
  if (std::string_view(kLraTasks[task].name) == "listops")
    panel.reference_lines.push_back({first_token, "first token"});
  train::PlotOptions options;
  options.panel_width = 640;
  options.panel_height = 420;
  return train::render_svg({panel}, options);
}

void draw_plots(const std::vector<Group>& groups, const std::vector<Run>& runs, double first_token,
                const std::string& folder) {
  TORCH_CHECK_VALUE(!std::filesystem::exists(folder) || std::filesystem::is_directory(folder),
                    "reproduce lra --svg: expected a folder for the plots; ", folder, " is a file");
  std::filesystem::create_directories(folder);
  for (size_t task = 0; task < kLraTasks.size(); ++task) {
    if (std::ranges::none_of(groups, [&](const Group& g) { return g.task == task; }) &&
        std::ranges::none_of(runs, [&](const Run& r) { return is_untested_sbm(r, task); }))
      continue;
    const auto file = std::filesystem::path(folder) / (std::string(kLraTasks[task].name) + ".svg");
    io::write_file_atomically(file, plot(groups, runs, task, first_token));
    std::cerr << "plot: " << file.string() << "\n";
  }
}

bool holds_runs(const std::string& folder) {
  std::error_code no_folder;
  const std::filesystem::directory_iterator inside(folder, no_folder);
  return std::any_of(begin(inside), end(inside), [](const std::filesystem::directory_entry& entry) {
    return std::filesystem::exists(entry.path() / "metrics.jsonl");
  });
}

int run(const ReproduceArguments& arguments) {
  std::vector<Run> runs;
  const auto take = [&](Run run) {
    if (!is_chosen(run, arguments.runs)) return;
    if (task_index(run) == kLraTasks.size())
      std::cerr << run.folder.string() << " is of " << run.recipe.data.name << "; left out\n";
    else
      runs.push_back(std::move(run));
  };
  for (const std::string& folder : arguments.runs.places) {
    if (is_run_file(folder)) {
      for (Run& run : read_run_file(folder, "reproduce lra")) take(std::move(run));
      continue;
    }
    TORCH_CHECK_VALUE(std::filesystem::exists(folder),
                      "reproduce lra: expected run folders; there is no folder ", folder);
    const auto lacks = [&](const char* file) {
      if (std::filesystem::exists(std::filesystem::path(folder) / file)) return false;
      std::cerr << folder << " is not a run folder (it has no " << file << "); left out"
                << (holds_runs(folder) ? "; its folders are: " + folder + "/*" : "") << "\n";
      return true;
    };
    if (lacks("metrics.jsonl") || lacks("config.toml")) continue;
    take(read_run(folder, "reproduce lra"));
  }
  TORCH_CHECK_VALUE(!runs.empty(),
                    "reproduce lra: expected at least one run folder of the Long Range Arena; none of the ",
                    arguments.runs.places.size(), " given is one");
  const std::vector<Group> groups = group_runs(runs);
  const FirstToken first_token = first_token_accuracy(runs);
  // First: a reader of the tables may go before their end.
  if (!arguments.svg.empty()) draw_plots(groups, runs, first_token.percent, arguments.svg);
  print_table_1(groups);
  std::cout
      << "ListOps, the first token alone: " << fixed(first_token.percent, 2) << " % (" << first_token.of
      << ").\n* fewer examples than in the published recipe  † the test set chose the checkpoint  ‡ other "
         "data than the paper's, not to be compared  § started from another run's weights  ¶ edges chosen or "
         "learned otherwise than the preset has it (remarks)\n";
  print_table_8(groups);
  print_table_9(groups);
  print_runs(runs);
  return 0;
}

}  // namespace

void add_reproduce(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("reproduce", "Put runs beside the figures of a paper");
  command->require_subcommand(1);
  auto arguments = std::make_shared<ReproduceArguments>();
  CLI::App* lra =
      command->add_subcommand("lra", "SBM-Transformer on the Long Range Arena: Tables 1, 8 and 9");
  add_run_choice(*lra, arguments->runs);
  lra->add_option("--svg", arguments->svg, "folder for one plot per task of accuracy over density");
  lra->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
