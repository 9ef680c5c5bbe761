#include "sweep/sweep_state.h"

#include <c10/util/Exception.h>
#include <edgewise/train/metrics.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "runs.h"
#include "train/run/kept_checkpoints.h"
#include "train/run/run_folder.h"

namespace edgewise::app {
namespace {

std::string kind_of(const train::MetricRecord& record) {
  const train::MetricValue* kind = train::find_metric(record, "kind");
  const auto* text = kind ? std::get_if<std::string>(kind) : nullptr;
  return text ? *text : "";
}

// What a test is judged by.
double judged(const train::MetricRecord& record) {
  const train::MetricValue* metric = train::find_metric(record, "metric");
  const auto* name = metric ? std::get_if<std::string>(metric) : nullptr;
  return number_of(record, name ? name->c_str() : "accuracy");
}

}  // namespace

RunState state_of(const SweepRun& run, const std::filesystem::path& folder) {
  const train::RunFolder files{.root = folder};
  RunState state;
  if (!train::file_exists(files.config())) return state;
  const train::Recipe started = train::load_recipe(files.config());
  const auto change = train::forbidden_change(train::to_toml(started), train::to_toml(run.recipe));
  TORCH_CHECK_VALUE(!change, "sweep: expected in ", folder.string(), " a run of the row ", run.row, "; ",
                    change.value_or(""), ". Give this sweep another folder with --runs, or move that run");
  state.stage = RunStage::kBegun;
  if (!train::file_exists(files.metrics())) return state;
  for (const train::MetricRecord& record : train::read_metrics(files.metrics())) {
    state.step = std::max(state.step, static_cast<int64_t>(number_of(record, "step")));
    const std::string kind = kind_of(record);
    const double accuracy = number_of(record, "accuracy");
    if (kind == "eval") state.best_validation = std::max(state.best_validation.value_or(-1), accuracy);
    if (kind != "test") continue;
    state.accuracy = judged(record);
    state.density = number_of(record, "density");
  }
  // A run that is made longer was tested at its former end.
  if (state.accuracy && started.train.steps == run.recipe.train.steps) state.stage = RunStage::kDone;
  return state;
}

int64_t last_step(const std::filesystem::path& folder) {
  constexpr std::streamoff kTail = 8192;
  std::ifstream file(folder / "metrics.jsonl", std::ios::binary);
  if (!file.seekg(0, std::ios::end)) return 0;
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kTail));
  std::string text(static_cast<size_t>(std::min(size, kTail)), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  const std::string key = "\"step\": ";
  const size_t end = text.rfind('\n');  // what comes after it is not whole
  const size_t at = end == std::string::npos ? end : text.rfind(key, end);
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + key.size());
}

void discard_weights(const SweepRun& run, const std::filesystem::path& folder) {
  if (run.keeps_all) return;
  const train::RunFolder files{.root = folder};
  std::vector<std::filesystem::path> useless = {files.last()};
  if (!run.keeps_best)
    for (const std::string& file : {files.best(), files.mean()}) useless.push_back(file);
  const train::KeptCheckpoints kept(folder, 0);
  for (const int64_t step : kept.steps()) useless.push_back(kept.path(step));
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().find("tfevents") != std::string::npos)
      useless.push_back(entry.path());
  for (const std::filesystem::path& path : useless) std::filesystem::remove(path);
}

}  // namespace edgewise::app
