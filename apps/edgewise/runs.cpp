#include "runs.h"

#include <c10/util/Exception.h>
#include <edgewise/io/atomic_file.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>

#include "data/datasets.h"
#include "table.h"
#include "train/run/metric_lines.h"
#include "train/run/run_folder.h"

namespace edgewise::app {
namespace {

std::vector<double> list_of(const train::MetricRecord& record, const char* name) {
  const train::MetricValue* value = train::find_metric(record, name);
  const auto* list = value ? std::get_if<std::vector<double>>(value) : nullptr;
  return list ? *list : std::vector<double>();
}

void add_point(train::Series& series, double x, double y) {
  series.x.push_back(x);
  series.y.push_back(y);
}

void add_training(Run& run, const train::MetricRecord& record, double step, std::vector<double>& speeds) {
  add_point(run.loss, step, number_of(record, "task_loss"));
  add_point(run.density, step, number_of(record, "density"));
  const std::vector<double> heads = list_of(record, "density");
  run.head_densities.resize(std::max(run.head_densities.size(), heads.size()));
  for (size_t i = 0; i < heads.size(); ++i) add_point(run.head_densities[i], step, heads[i]);
  run.peak_memory_mb = std::max(run.peak_memory_mb, number_of(record, "memory_peak_mb"));
  speeds.push_back(number_of(record, "time_examples_per_s"));
}

// Characters are bytes; a text in pieces has its bits per byte beside its loss.
constexpr const char* kTokenLoss = "token_loss";

const char* name_of_bits(const train::MetricRecord& record) {
  return train::find_metric(record, "bits_per_byte") ? "bits_per_byte" : "bits_per_character";
}

TestFigures test_figures(const train::MetricRecord& record, double accuracy) {
  const auto optional_number = [&](const char* name) {
    return train::find_metric(record, name) ? std::optional(number_of(record, name)) : std::nullopt;
  };
  TestFigures figures;
  figures.accuracy = accuracy;
  figures.loss = number_of(record, "loss");
  figures.density = list_of(record, "density");
  figures.valid_density = list_of(record, "density_of_valid_pairs");
  figures.valid_pairs = optional_number("valid_pairs");
  figures.bits = optional_number(name_of_bits(record));
  figures.right = optional_number("accuracy");
  figures.precision = optional_number("edge_precision");
  figures.recall = optional_number("edge_recall");
  return figures;
}

}  // namespace

bool Run::is_its_start() const {
  return !recipe.train.weights.empty() && is_validated() && best_step == 0;
}

double TestFigures::mean_density() const {
  return density.empty()
             ? -1
             : std::accumulate(density.begin(), density.end(), 0.0) / static_cast<double>(density.size());
}

std::string shown_figure(const std::string& name, double value) {
  return name == kTokenLoss ? fixed(value, 4) : percent(value);
}

double number_of(const train::MetricRecord& record, const char* name) {
  const train::MetricValue* value = train::find_metric(record, name);
  if (!value) return -1;
  if (const auto* real = std::get_if<double>(value)) return *real;
  if (const auto* whole = std::get_if<int64_t>(value)) return static_cast<double>(*whole);
  if (const auto* list = std::get_if<std::vector<double>>(value); list && !list->empty())
    return std::accumulate(list->begin(), list->end(), 0.0) / static_cast<double>(list->size());
  return -1;
}

namespace {

// What an evaluation is judged by: what its record names, the loss a token, or the accuracy.
std::string judged_by(const train::MetricRecord& record) {
  if (const train::MetricValue* const metric = train::find_metric(record, "metric"))
    if (const auto* const name = std::get_if<std::string>(metric)) return *name;
  return train::find_metric(record, kTokenLoss) ? kTokenLoss : "accuracy";
}

// What the records say; `file` names them in messages.
void read_records(Run& run, const std::vector<train::MetricRecord>& records, const std::string& file,
                  const std::string& command) {
  run.loss.name = run.density.name = run.accuracy.name = run.precision.name = run.recall.name =
      run.bits.name = run.name;
  std::vector<double> speeds;
  TestFigures best_look;
  for (const train::MetricRecord& record : records) {
    const train::MetricValue* kind = train::find_metric(record, "kind");
    const std::string what = kind ? std::get<std::string>(*kind) : "";
    const double step = number_of(record, "step");
    run.steps = std::max(run.steps, static_cast<int64_t>(step));
    if (what == "train") {
      add_training(run, record, step, speeds);
    } else if (what == "eval") {
      run.validated_by = judged_by(record);
      const double accuracy = number_of(record, run.validated_by.c_str());
      add_point(run.accuracy, step, accuracy);
      const bool in_bits = train::find_metric(record, name_of_bits(record)) != nullptr;
      const double bits = in_bits ? number_of(record, name_of_bits(record)) : 0;
      if (in_bits) {
        add_point(run.bits, step, bits);
        run.bits_of = std::string(name_of_bits(record)).substr(std::string_view("bits_per_").size());
      }
      if (train::find_metric(record, "edge_precision"))
        add_point(run.precision, step, number_of(record, "edge_precision"));
      if (train::find_metric(record, "edge_recall"))
        add_point(run.recall, step, number_of(record, "edge_recall"));
      const bool is_best = in_bits ? !run.best_bits || bits < *run.best_bits
                           : run.validated_by == kTokenLoss
                               ? !run.is_validated() || accuracy < run.best_validation
                               : accuracy > run.best_validation;
      if (is_best) {
        run.best_validation = accuracy;
        run.best_density = number_of(record, "density");
        best_look = test_figures(record, accuracy);
        if (in_bits) run.best_bits = bits;
        run.best_step = static_cast<int64_t>(step);
        run.validations_since_best = 0;
      } else {
        ++run.validations_since_best;
      }
    } else if (what == "test") {
      run.judged_by = judged_by(record);
      const double accuracy = number_of(record, run.judged_by.c_str());
      TORCH_CHECK_VALUE(train::find_metric(record, run.judged_by.c_str()), command, ": expected ",
                        run.judged_by == "accuracy" ? "an " : "the figure ", run.judged_by,
                        " in the test record of ", file,
                        "; it has none. Without that line `edgewise eval RUN --record` writes it anew");
      run.test = test_figures(record, accuracy);
    }
  }
  // Where the test set validates, the best look at it is the test, also of a run that was stopped.
  if (!run.test && run.best_step > 0 && run.recipe.data.validation == "test" &&
      run.recipe.train.eval_batches == 0) {
    run.test = best_look;
    run.is_best_look = true;
  }
  for (size_t i = 0; i < run.head_densities.size(); ++i) {
    const auto heads = static_cast<size_t>(run.recipe.model.heads);
    run.head_names.push_back("layer " + std::to_string(i / heads) + ", head " + std::to_string(i % heads));
    run.head_densities[i].name = run.head_names.back();
  }
  if (!speeds.empty()) {
    const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
    std::nth_element(speeds.begin(), middle, speeds.end());
    run.examples_per_second = *middle;
  }
}

// One line of a file of runs.
Run run_of_line(const nlohmann::ordered_json& line, const std::string& place, const std::string& command) {
  Run run;
  run.name = line.at("run").get<std::string>();
  run.folder = place + ":" + run.name;
  run.recipe = train::parse_recipe(line.at("recipe").get<std::string>(), run.folder.string());
  if (line.contains("data")) run.data = line.at("data").dump();
  std::string records;
  for (const auto& record : line.at("records")) records += record.dump() + "\n";
  read_records(run, train::parse_metrics(records, run.folder.string()), run.folder.string(), command);
  // Of all records of training, of which the line has some.
  run.steps = line.at("steps").get<int64_t>();
  run.examples_per_second = line.at("examples_per_second").get<double>();
  run.peak_memory_mb = line.at("peak_memory_mb").get<double>();
  if (line.contains("step")) run.step_ms = line.at("step").at("step_ms").get<double>();
  return run;
}

}  // namespace

Run read_run(const std::string& folder, const std::string& command) {
  std::filesystem::path path(folder);
  if (!path.has_filename()) path = path.parent_path();  // a trailing slash
  TORCH_CHECK_VALUE(std::filesystem::exists(path / "metrics.jsonl"), command, ": ", folder,
                    " is not a run folder (it has no metrics.jsonl)");
  Run run;
  run.folder = path;
  run.name = path.filename().string();
  if (!run.name.empty() && std::isdigit(static_cast<unsigned char>(run.name[0])))
    run.name = path.parent_path().filename().string() + " " + run.name;
  run.recipe = train::load_recipe((path / "config.toml").string());
  run.data = noted_data(path);
  const std::filesystem::path metrics = path / "metrics.jsonl";
  read_records(run, train::read_metrics(metrics), metrics.string(), command);
  if (const std::filesystem::path step = path / kStepFile; std::filesystem::exists(step)) {
    const auto measured = nlohmann::json::parse(io::read_file(step), nullptr, /*allow_exceptions=*/false);
    TORCH_CHECK_VALUE(measured.is_object() && measured.contains("step_ms") && measured["step_ms"].is_number(),
                      command, ": expected step_ms in ", step.string(),
                      ", as `edgewise sweep --time` writes it. Without that file it is measured anew");
    run.step_ms = measured["step_ms"].get<double>();
  }
  return run;
}

bool is_run_file(const std::string& place) {
  return std::filesystem::path(place).extension() == ".jsonl" && std::filesystem::is_regular_file(place);
}

std::vector<Run> read_run_file(const std::string& file, const std::string& command) {
  std::vector<Run> runs;
  std::string_view text;
  const std::string whole = io::read_file(file);
  text = whole;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    try {
      runs.push_back(run_of_line(nlohmann::ordered_json::parse(line), file, command));
    } catch (const nlohmann::json::exception& error) {
      TORCH_CHECK_VALUE(false, command, ": ", file, " line ", number,
                        ": expected a run as tools/pack-runs writes it; ", error.what());
    }
  }
  TORCH_CHECK_VALUE(!runs.empty(), command, ": expected runs in ", file, "; it is empty");
  return runs;
}

namespace {

// In the order of their names.
std::vector<std::filesystem::path> run_folders_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code no_folder;
  for (const auto& entry : std::filesystem::directory_iterator(folder, no_folder))
    if (std::filesystem::exists(entry.path() / "metrics.jsonl")) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

}  // namespace

std::vector<Run> read_place(const std::string& place, const std::string& command) {
  if (is_run_file(place)) return read_run_file(place, command);
  const std::filesystem::path folder(place);
  TORCH_CHECK_VALUE(std::filesystem::exists(folder), command, ": expected run folders; there is no folder ",
                    place);
  const bool is_run = std::filesystem::exists(folder / "metrics.jsonl");
  const std::vector<std::filesystem::path> folders =
      is_run ? std::vector<std::filesystem::path>{folder} : run_folders_in(folder);
  if (folders.empty()) std::cerr << place << " is not a run folder (it has no metrics.jsonl); left out\n";
  std::vector<Run> runs;
  for (const std::filesystem::path& run : folders) {
    if (std::filesystem::exists(run / "config.toml"))
      runs.push_back(read_run(run.string(), command));
    else
      std::cerr << run.string() << " is not a run folder (it has no config.toml); left out\n";
  }
  return runs;
}

void add_run_choice(CLI::App& command, RunChoice& choice) {
  command
      .add_option("runs", choice.places,
                  "run folders, folders of them, or files of runs such as results/lra.jsonl")
      ->required();
  command.add_option("--only", choice.only, "only runs whose name this regular expression finds");
  command.add_option("--leave-out", choice.leave_out, "no runs whose name this regular expression finds");
}

bool is_chosen(const Run& run, const RunChoice& choice) {
  const auto finds = [&](const std::string& pattern) {
    try {
      return std::regex_search(run.name, std::regex(pattern));
    } catch (const std::regex_error& error) {
      TORCH_CHECK_VALUE(false, "--only, --leave-out: expected a regular expression; got '", pattern,
                        "': ", error.what());
    }
  };
  return (choice.only.empty() || finds(choice.only)) &&
         (choice.leave_out.empty() || !finds(choice.leave_out));
}

std::string checkpoint_file(const std::filesystem::path& folder, const std::string& wanted,
                            const std::string& command) {
  const auto file = [&](const std::string& name) { return folder / "checkpoints" / (name + ".safetensors"); };
  const bool has_best = std::filesystem::exists(file("best")),
             has_last = std::filesystem::exists(file("last")),
             has_mean = std::filesystem::exists(file("mean"));
  if (!has_best && !has_last) {
    const train::RunFolder run{.root = folder};
    const std::string lost =
        train::lost_weights(run, train::load_recipe(run.config()).train.checkpoint_every);
    TORCH_CHECK_VALUE(lost.empty(), command, ": expected a checkpoint in ", folder.string(),
                      "; it has none: ", lost);
    TORCH_CHECK_VALUE(false, command, ": expected a checkpoint in ", folder.string(),
                      "; it has none yet. Go on with: edgewise train --resume ", folder.string());
  }
  TORCH_CHECK_VALUE(wanted != "best" || has_best, command, ": expected ", file("best").string(),
                    "; there is none before the first validation. Use --checkpoint last.");
  TORCH_CHECK_VALUE(wanted != "last" || has_last, command, ": expected ", file("last").string(),
                    "; there is none. Use --checkpoint best.");
  TORCH_CHECK_VALUE(
      wanted != "mean" || has_mean, command, ": expected ", file("mean").string(),
      "; there is none: a run with train.average_last makes it at its end. Use --checkpoint best.");
  if (!wanted.empty()) return file(wanted).string();
  if (has_mean) return file("mean").string();
  if (!has_best) std::cerr << "no best checkpoint before the first validation; using the last\n";
  return file(has_best ? "best" : "last").string();
}

}  // namespace edgewise::app
