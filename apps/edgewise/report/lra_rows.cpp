#include "report/lra_rows.h"

#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "folders.h"
#include "report/lra_paper.h"
#include "table.h"

namespace edgewise::app {
namespace {

bool penalty_rises(const train::Recipe& recipe) {
  return recipe.train.density_start > 0 || recipe.train.density_warmup > 0;
}

// Edges that nothing learns: where they were drawn from stays as it began.
bool is_frozen(const train::Recipe& recipe) {
  return train::attention_kind(recipe).reads("sbm") && recipe.train.edge_rate == 0;
}

// Whether its edges are chosen, learned or drawn otherwise than the preset has it, or tokens are hidden from
// it: what was tried beside the method.
bool is_variation(const train::Recipe& recipe) {
  const train::SbmRecipe& sbm = recipe.sbm;
  if (is_frozen(recipe)) return false;
  const bool has_window = train::attention_kind(recipe).reads("window");
  return recipe.train.edge_rate != 1 || recipe.train.eval_draws != 1 || recipe.model.token_dropout > 0 ||
         has_window || sbm.clusters || sbm.cluster_std || sbm.law || sbm.exploration || sbm.estimator ||
         sbm.probe_rate || sbm.probes_per_row;
}

// Of a run that was killed, steps are known to the last record.
bool stopped_early(const Run& run) {
  return run.steps + std::max<int64_t>(run.recipe.train.log_every, 1) <= run.recipe.train.steps;
}

// As its recipe asks for, and so complete.
bool ended_by_patience(const Run& run) {
  const int64_t patience = run.recipe.train.patience;
  return run.test && stopped_early(run) && patience > 0 && run.validations_since_best >= patience;
}

// Than the task's official ones, by the size of the test set that the run has noted.
bool of_other_data(const Run& run) {
  const auto noted = nlohmann::json::parse(run.data, nullptr, /*allow_exceptions=*/false);
  if (!noted.is_object()) return false;
  const auto test = noted.find("test");
  TORCH_CHECK_VALUE(test == noted.end() || test->is_number_integer(), (run.folder / "data.json").string(),
                    ": expected a whole number as \"test\"; correct the file, or train the run again");
  return (test == noted.end() ? int64_t{0} : test->get<int64_t>()) != kLraTasks[lra_task_of(run)].test_size;
}

LraFamily family_of(const train::Recipe& recipe) {
  const bool squares = recipe.attention.unit > 1;
  if (recipe.attention.kind == "dense") return LraFamily::kDense;
  if (!train::attention_kind(recipe).reads("sbm")) return LraFamily::kOther;
  if (is_frozen(recipe)) return squares ? LraFamily::kRandomSquares : LraFamily::kRandomEdges;
  if (recipe.sbm.preset == "published") return LraFamily::kPublished;
  if (recipe.sbm.preset == "paper") return LraFamily::kPaper;
  return squares ? LraFamily::kSquares : LraFamily::kEdges;
}

std::string attention_in_words(const train::Recipe& recipe) {
  switch (family_of(recipe)) {
    case LraFamily::kRandomEdges:
      return "random edges";
    case LraFamily::kRandomSquares:
      return "random squares";
    case LraFamily::kPublished:
      return "SBM published";
    case LraFamily::kPaper:
      return "SBM paper";
    case LraFamily::kEdges:
      return recipe.attention.kind == "sbm" ? "SBM edges" : recipe.attention.kind + ", edges";
    case LraFamily::kSquares:
      return recipe.attention.kind == "sbm" ? "SBM squares" : recipe.attention.kind + ", squares";
    default:
      break;
  }
  for (const PaperAttention& paper : kPaperAttentions)
    if (recipe.attention.kind == paper.kind && recipe.attention.kind != "dense") return paper.title;
  return recipe.attention.kind;
}

// Whether a test without a share of valid pairs may have had padding all the same: tests did not always
// record it.
bool may_have_padding(const train::Recipe& recipe) {
  return recipe.data.mask_zero || (recipe.data.name != "image" && recipe.data.name != "pathfinder");
}

// Mean densities of a test over valid pairs and over all pairs, as far as it tells them.
std::pair<std::optional<double>, std::optional<double>> densities_of(const Run& run) {
  const TestFigures& test = *run.test;
  const double recorded = test.mean_density();
  if (recorded < 0) return {};
  if (train::density_counts_padding(run.recipe)) {
    std::optional<double> valid;
    if (!test.valid_density.empty()) {
      TestFigures of_valid;
      of_valid.density = test.valid_density;
      valid = of_valid.mean_density();
    } else if (!may_have_padding(run.recipe)) {
      valid = recorded;
    }
    return {valid, recorded};
  }
  if (test.valid_pairs) return {recorded, recorded * *test.valid_pairs};
  return {recorded, may_have_padding(run.recipe) ? std::nullopt : std::optional(recorded)};
}

void add_once(std::vector<std::string>& texts, const std::string& text) {
  if (std::ranges::find(texts, text) == texts.end()) texts.push_back(text);
}

// What its runs have in common.
LraRow begin_row(const Run& run) {
  const train::Recipe& recipe = run.recipe;
  LraRow row;
  row.task = lra_task_of(run);
  row.family = family_of(recipe);
  row.attention = attention_in_words(recipe);
  row.kind = recipe.attention.kind;
  if (train::attention_kind(recipe).reads("sbm")) {
    row.preset = recipe.sbm.preset;
    row.self_loops = train::sbm_options(recipe).self_loops;
    row.penalty = recipe.train.density_weight;
    row.rises = row.penalty > 0 && penalty_rises(recipe);
  }
  row.planned_steps = recipe.train.steps;
  row.batch = recipe.train.batch;
  row.average = recipe.train.average;
  row.chosen_on_test = recipe.data.validation == "test";
  row.has_start = !recipe.train.weights.empty();
  row.is_variation = is_variation(recipe);
  Run same = run;
  same.recipe.train.density_weight = 0;
  row.training = recipe_but_seed(same);
  return row;
}

void add_run(LraRow& row, const Run& run) {
  const int64_t steps = stopped_early(run) ? run.steps : run.recipe.train.steps;
  row.steps = row.accuracy.empty() ? steps : std::min(row.steps, steps);
  row.of_other_data = row.of_other_data || of_other_data(run);
  for (const std::string& remark : remarks_on(run)) add_once(row.remarks, remark);
  row.seeds.push_back(run.recipe.train.seed);
  row.accuracy.push_back(100 * run.test->accuracy);
  row.validation.push_back(100 * run.best_validation);
  const auto [valid, all] = densities_of(run);
  if (valid) row.valid_density.push_back(100 * *valid);
  if (all) row.all_density.push_back(100 * *all);
  if (run.step_ms) row.step_ms.push_back(*run.step_ms);
}

// A figure that only some of the seeds have would compare other runs than the accuracy beside it.
void end_row(LraRow& row, const std::vector<Run>& runs) {
  row.name = group_name(runs);
  for (std::vector<double>* figures : {&row.valid_density, &row.all_density})
    if (figures->size() < row.accuracy.size()) figures->clear();
  const double share = static_cast<double>(row.steps * row.batch) / kLraTasks[row.task].published_examples;
  if (share < 1)
    row.remarks.insert(row.remarks.begin(), "only " + percent(share, 0) + " of the published examples");
  if (row.is_variation) row.remarks.insert(row.remarks.begin(), "a variation");
}

}  // namespace

std::optional<double> LraRow::density() const {
  const std::vector<double>& known = valid_density.empty() ? all_density : valid_density;
  return known.empty() ? std::nullopt : std::optional(spread_of(known).mean);
}

std::optional<double> LraRow::step() const {
  return step_ms.empty() ? std::nullopt : std::optional(spread_of(step_ms).mean);
}

std::string lambda_label(const LraRow& row) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", row.penalty);
  return text + std::string(row.rises ? " rising" : "") + (row.self_loops ? " + I" : "");
}

size_t lra_task_of(const Run& run) {
  return static_cast<size_t>(std::ranges::find(kLraTasks, run.recipe.data.name, &LraTask::name) -
                             kLraTasks.begin());
}

std::vector<std::string> remarks_on(const Run& run) {
  std::vector<std::string> result;
  const auto add = [&](const std::string& remark) { result.push_back(remark); };
  const auto number = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return std::string(text);
  };
  const train::Recipe& recipe = run.recipe;
  if (ended_by_patience(run))
    add("ended by patience");
  else if (stopped_early(run))
    add("stopped at step " + std::to_string(run.steps));
  if (run.test && recipe.data.validation == "test")
    add(run.is_best_look ? "the best look at the test set, as published"
                         : "the test set chose the checkpoint, as published");
  if (of_other_data(run)) add("other data than the paper's");
  if (recipe.model.pooling == "mean_padded") add("padded");
  if (recipe.train.average > 0) add("averaged weights");
  if (recipe.model.dropout != train::ModelRecipe().dropout) add("dropout " + number(recipe.model.dropout));
  const train::SbmRecipe& sbm = recipe.sbm;
  if (recipe.train.edge_rate != 1 && !is_frozen(recipe))
    add("train.edge_rate = " + number(recipe.train.edge_rate));
  if (recipe.train.eval_draws != 1) add("train.eval_draws = " + std::to_string(recipe.train.eval_draws));
  if (sbm.cluster_std && !is_frozen(recipe)) add("cluster_std = " + number(*sbm.cluster_std));
  if (sbm.probe_rate && !is_frozen(recipe)) add("probe_rate = " + number(*sbm.probe_rate));
  if (train::attention_kind(recipe).reads("window")) add("window " + std::to_string(recipe.window.width));
  if (recipe.data.symmetries != "none") add("data.symmetries = " + recipe.data.symmetries);
  if (recipe.model.token_dropout > 0) add("model.token_dropout = " + number(recipe.model.token_dropout));
  if (!recipe.train.weights.empty())
    add((run.is_its_start() ? "figures of its start, " : "started from ") +
        shown_place(recipe.train.weights));
  return result;
}

std::vector<LraRow> lra_rows(const std::vector<Run>& runs) {
  std::map<std::string, size_t> places;  // by everything but the seed
  std::map<std::string, std::string> seen;
  std::vector<LraRow> rows;
  std::vector<std::vector<Run>> members;
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
    const auto [place, is_first] = places.try_emplace(recipe, rows.size());
    if (is_first) {
      rows.push_back(begin_row(run));
      members.emplace_back();
    }
    add_run(rows[place->second], run);
    members[place->second].push_back(run);
  }
  for (size_t n = 0; n < rows.size(); ++n) end_row(rows[n], members[n]);
  std::ranges::stable_sort(rows, {}, [](const LraRow& row) {
    return std::tuple(row.task, row.family, row.family == LraFamily::kOther ? row.kind : "",
                      -row.density().value_or(0));
  });
  return rows;
}

bool same_protocol(const LraRow& a, const LraRow& b) {
  const auto protocol = [](const LraRow& row) {
    return std::tuple(row.task, row.planned_steps, row.batch, row.average, row.chosen_on_test, row.has_start,
                      row.of_other_data);
  };
  return protocol(a) == protocol(b);
}

}  // namespace edgewise::app
