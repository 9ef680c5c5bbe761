#include "report/lra_tables.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "report/lra_paper.h"
#include "table.h"

namespace edgewise::app {
namespace {

void print(const Table& table, TableForm form, std::ostream& out) {
  if (form == TableForm::kMarkdown)
    table.print_markdown(out);
  else
    table.print(out);
}

std::string mean_or_dash(const std::vector<double>& values, int digits) {
  return values.empty() ? "-" : fixed(spread_of(values).mean, digits);
}

std::string in_words(const std::vector<std::string>& remarks) {
  std::string text;
  for (const std::string& remark : remarks) text += (text.empty() ? "" : "; ") + remark;
  return text;
}

// The same attention's figures in the paper, "38.20 at 2.95"; a dash where it has none.
std::string papers_figure(const LraRow& row) {
  if (row.of_other_data) return "-";
  for (const PaperAttention& paper : kPaperAttentions)
    if (row.kind == paper.kind) return fixed(paper.accuracy[row.task], 2);
  const bool is_theirs = row.family == LraFamily::kPublished || row.family == LraFamily::kPaper;
  for (const PaperSbm& paper : kPaperSbm)
    if (is_theirs && !row.rises && paper.penalty == row.penalty && paper.self_loops == row.self_loops)
      return fixed(paper.accuracy[row.task], 2) + " at " + fixed(paper.density[row.task], 2);
  return "-";
}

// Of the fastest dense row of one protocol.
std::optional<double> step_over_dense(const LraRow& row, const std::vector<LraRow>& rows) {
  std::optional<double> dense;
  for (const LraRow& other : rows)
    if (other.family == LraFamily::kDense && other.batch == row.batch && other.task == row.task &&
        other.step() && (!dense || *other.step() < *dense))
      dense = other.step();
  return dense && row.step() ? std::optional(*row.step() / *dense) : std::nullopt;
}

void print_rows(const std::vector<LraRow>& rows, size_t task, TableForm form, std::ostream& out) {
  const bool timed = std::ranges::any_of(
      rows, [&](const LraRow& row) { return row.task == task && row.step().has_value(); });
  std::vector<std::string> header = {"row",
                                     "attention",
                                     "lambda",
                                     "test accuracy, %",
                                     "density, valid pairs, %",
                                     "density, all pairs, %",
                                     "steps x batch"};
  if (timed) header.insert(header.end(), {"step, ms", "step over dense"});
  header.insert(header.end(), {"the paper's", "remarks"});
  Table table(header);
  for (const LraRow& row : rows) {
    if (row.task != task) continue;
    std::vector<std::string> cells = {row.name,
                                      row.attention,
                                      row.is_sbm() && !row.is_random() ? lambda_label(row) : "-",
                                      show(spread_of(row.accuracy)),
                                      mean_or_dash(row.valid_density, 2),
                                      mean_or_dash(row.all_density, 2),
                                      std::to_string(row.steps) + " x " + std::to_string(row.batch)};
    if (timed) {
      const std::optional<double> over = step_over_dense(row, rows);
      cells.insert(cells.end(), {row.step() ? fixed(*row.step(), 2) : "-", over ? fixed(*over, 2) : "-"});
    }
    cells.insert(cells.end(), {papers_figure(row), in_words(row.remarks)});
    table.add(cells);
  }
  out << kLraTasks[task].title
      << ": test accuracy, mean ± standard deviation (seeds); densities are means over layers and heads.\n";
  if (form == TableForm::kMarkdown) out << "\n";
  print(table, form, out);
}

std::string probability(const std::optional<double>& p) {
  if (!p) return "-";
  return *p < 0.001 ? "<0.001" : fixed(*p, 3);
}

void print_differences(const std::vector<LraRow>& rows, size_t task, TableForm form, std::ostream& out) {
  const std::vector<LraDifference> differences = lra_differences(rows, task);
  if (differences.empty()) return;
  Table table({"is", "better", "namely", "difference, points", "standard error", "seeds", "p", "so it is"});
  for (const LraDifference& found : differences)
    table.add({found.row->name, found.question, found.against->name, fixed(found.mean, 2),
               found.error ? fixed(*found.error, 2) : "-", std::to_string(found.seeds), probability(found.p),
               found.verdict()});
  out << "\nDifferences over the same seeds. Above or below: by more than two standard errors, of three "
         "seeds "
         "or more.\n";
  if (form == TableForm::kMarkdown) out << "\n";
  print(table, form, out);
}

// Of our rows with learned edges that are at most so dense, the best on validation.
const LraRow* best_within(const std::vector<LraRow>& rows, size_t task, double density) {
  const LraRow* best = nullptr;
  for (const LraRow& row : rows) {
    const bool is_ours = row.family == LraFamily::kEdges || row.family == LraFamily::kSquares;
    if (row.task != task || !is_ours || row.is_variation || row.of_other_data || row.chosen_on_test) continue;
    if (!row.density() || *row.density() > density) continue;
    if (!best || spread_of(row.validation).mean > spread_of(best->validation).mean) best = &row;
  }
  return best;
}

void print_paper(const std::vector<LraRow>& rows, size_t task, TableForm form, std::ostream& out) {
  Table table({"the paper's lambda", "accuracy, %", "density, %", "ours, no denser", "accuracy, %",
               "density, %", "difference", "our standard error"});
  bool any = false;
  for (const PaperSbm& paper : kPaperSbm) {
    const LraRow* ours = best_within(rows, task, paper.density[task]);
    LraRow theirs;
    theirs.penalty = paper.penalty;
    theirs.self_loops = paper.self_loops;
    std::vector<std::string> cells = {lambda_label(theirs), fixed(paper.accuracy[task], 2),
                                      fixed(paper.density[task], 2)};
    if (ours) {
      any = true;
      const Spread spread = spread_of(ours->accuracy);
      const double count = static_cast<double>(spread.count);
      cells.insert(cells.end(), {ours->name, show(spread), fixed(*ours->density(), 2),
                                 fixed(spread.mean - paper.accuracy[task], 2),
                                 spread.count > 1 ? fixed(spread.deviation / std::sqrt(count), 2) : "-"});
    } else {
      cells.insert(cells.end(), {"-", "-", "-", "-", "-"});
    }
    table.add(cells);
  }
  if (!any) return;
  out << "\nBeside the paper's SBM: our row of at most that density that is best on validation. The paper "
         "gives no error of its figures.\n";
  if (form == TableForm::kMarkdown) out << "\n";
  print(table, form, out);
}

nlohmann::ordered_json json_of(const LraRow& row, const std::vector<LraRow>& rows) {
  const Spread accuracy = spread_of(row.accuracy);
  nlohmann::ordered_json json = {{"row", row.name}, {"attention", row.attention}};
  if (row.is_sbm()) json["lambda"] = row.penalty;
  json["seeds"] = row.seeds;
  json["accuracy"] = row.accuracy;
  json["mean"] = accuracy.mean;
  if (accuracy.count > 1) json["standard_deviation"] = accuracy.deviation;
  json["validation"] = row.validation;
  if (!row.valid_density.empty()) json["density_of_valid_pairs"] = row.valid_density;
  if (!row.all_density.empty()) json["density_of_all_pairs"] = row.all_density;
  json["steps"] = row.steps;
  json["batch"] = row.batch;
  if (row.step()) json["step_ms"] = *row.step();
  if (const auto over = step_over_dense(row, rows)) json["step_over_dense"] = *over;
  json["remarks"] = row.remarks;
  return json;
}

nlohmann::ordered_json json_of(const LraDifference& found) {
  nlohmann::ordered_json json = {{"row", found.row->name},
                                 {"against", found.against->name},
                                 {"question", found.question},
                                 {"seeds", found.seeds},
                                 {"difference", found.mean}};
  if (found.error) json["standard_error"] = *found.error;
  if (found.p) json["p"] = *found.p;
  json["verdict"] = found.verdict();
  return json;
}

}  // namespace

void print_task(const std::vector<LraRow>& rows, size_t task, TableForm form, std::ostream& out) {
  print_rows(rows, task, form, out);
  print_differences(rows, task, form, out);
  print_paper(rows, task, form, out);
}

void print_untested(const std::vector<Run>& runs, TableForm form, std::ostream& out) {
  Table table({"no test yet", "task", "step", "best validation, %", "density, %", "remarks"});
  bool any = false;
  for (const Run& run : runs) {
    if (run.test && !run.is_its_start()) continue;
    any = true;
    table.add({run.name, run.recipe.data.name,
               std::to_string(run.steps) + " of " + std::to_string(run.recipe.train.steps),
               !run.is_validated() ? "-" : fixed(100 * run.best_validation, 2),
               run.best_density < 0 ? "-" : fixed(100 * run.best_density, 2), in_words(remarks_on(run))});
  }
  if (!any) return;
  out << "\n";
  print(table, form, out);
}

std::string json_of_tasks(const std::vector<LraRow>& rows) {
  nlohmann::ordered_json tasks = nlohmann::ordered_json::array();
  for (size_t task = 0; task < kLraTasks.size(); ++task) {
    nlohmann::ordered_json found = {{"task", kLraTasks[task].name},
                                    {"rows", nlohmann::ordered_json::array()},
                                    {"differences", nlohmann::ordered_json::array()}};
    for (const LraRow& row : rows)
      if (row.task == task) found["rows"].push_back(json_of(row, rows));
    if (found["rows"].empty()) continue;
    for (const LraDifference& difference : lra_differences(rows, task))
      found["differences"].push_back(json_of(difference));
    tasks.push_back(std::move(found));
  }
  return nlohmann::ordered_json{{"tasks", std::move(tasks)}}.dump();
}

}  // namespace edgewise::app
