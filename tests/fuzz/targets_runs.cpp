// Recipes, metrics, run folders, files of runs and sweeps.
#include <edgewise/train/metrics.h>
#include <edgewise/train/recipe.h>

#include <fstream>
#include <sstream>

#include "fuzz_target.h"
#include "runs.h"
#include "sweep/sweep_file.h"
#include "train/run/metric_lines.h"
#include "train/run/run_folder.h"

namespace edgewise::fuzz {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

const std::filesystem::path kRecipes = std::filesystem::path(EDGEWISE_SOURCE_DIR) / "recipes";

std::string recipe_text(const char* name) {
  return text_of(kRecipes / name);
}

void run_recipe(std::string_view input) {
  const auto path = write_scratch("input.toml", input);
  refuses_or_reads([&] {
    const std::string text = train::to_toml(train::load_recipe(path.string()));
    must(train::to_toml(train::parse_recipe(text, "again")) == text,
         "the same recipe from what was printed of it");
  });
}

constexpr const char* kMetrics =
    R"({"kind": "train", "step": 1, "loss": 1.5, "task_loss": 1.5, "accuracy": 0.5, "density": [0.5, 0.25], "time_examples_per_s": 3.0}
{"kind": "eval", "step": 2, "split": "validation", "loss": "nan", "accuracy": 0.25, "density": [1.0, 0.0]}
{"kind": "test", "step": 2, "split": "test", "loss": 1e-3, "accuracy": 0.75, "density": [0.5, 0.5], "valid_pairs": 0.5}
)";

void run_metrics(std::string_view input) {
  refuses_or_reads([&] {
    std::string printed;
    const std::vector<train::MetricRecord> records = train::parse_metrics(std::string(input), "input");
    for (const train::MetricRecord& record : records) printed += train::to_json_line(record) + "\n";
    std::string again;
    for (const train::MetricRecord& record : train::parse_metrics(printed, "again"))
      again += train::to_json_line(record) + "\n";
    must(again == printed, "the same lines again");
  });
}

// config.toml, metrics.jsonl, data.json, step.json
void run_folder(std::string_view input) {
  const auto parts = parts_of(input, 4);
  std::filesystem::create_directories(scratch() / "run");
  write_scratch("run/config.toml", parts[0]);
  write_scratch("run/metrics.jsonl", parts[1]);
  write_scratch("run/data.json", parts[2]);
  write_scratch("run/step.json", parts[3]);
  refuses_or_reads([] { app::read_run((scratch() / "run").string(), "compare"); });
  refuses_or_reads([] { train::lost_weights({.root = scratch() / "run"}, 100); });
  // Which takes recipes that were read.
  refuses_or_reads([&] {
    const std::string found = train::to_toml(train::load_recipe((scratch() / "run/config.toml").string()));
    train::forbidden_change(train::to_toml(train::parse_recipe(recipe_text("demo/edgewise.toml"), "demo")),
                            found);
  });
}

void run_packed(std::string_view input) {
  const auto path = write_scratch("input.jsonl", input);
  refuses_or_reads([&] { app::read_run_file(path.string(), "compare"); });
}

std::string packed_seed() {
  const std::string whole = text_of(std::filesystem::path(EDGEWISE_SOURCE_DIR) / "results" / "graphs.jsonl");
  return whole.substr(0, whole.find('\n') + 1);
}

void run_sweep(std::string_view input) {
  const auto path = write_scratch("sweep.toml", input);
  write_scratch("tiny.toml", "[data]\nname = \"repeated_tokens\"\n");
  refuses_or_reads([&] { app::load_sweep(path); });
}

constexpr const char* kSweep = R"(runs = "runs/x"
seeds = [0, 1]
weights = "first"
[set]
train.steps = 4
[[row]]
name = "one"
recipe = "tiny.toml"
set.train.batch = [2, 4]
[[row]]
name = "two"
stage = 2
recipe = "tiny.toml"
)";

}  // namespace

std::vector<Target> run_targets() {
  return {
      {"recipe", "load_recipe and to_toml",
       [] {
         std::vector<std::string> seeds;
         for (const char* name :
              {"demo/edgewise.toml", "demo/full.toml", "lm/transformer-xl.toml", "lm/sac.toml",
               "needle/indexer.toml", "graphs/cora.toml", "translation/tiny.toml"})
           seeds.push_back(recipe_text(name));
         return seeds;
       },
       run_recipe},
      {"metrics", "read_metrics", [] { return std::vector<std::string>{kMetrics}; }, run_metrics},
      {"run_folder", "a run folder, as compare and resuming read it",
       [] {
         return std::vector<std::string>{
             join_parts({recipe_text("demo/edgewise.toml"), kMetrics,
                         R"({"name": "repeated_tokens", "train": 8, "validation": 4, "test": 4})",
                         R"({"step_ms": 2.5})"})};
       },
       run_folder},
      {"packed_runs", "files of runs", [] { return std::vector<std::string>{packed_seed()}; }, run_packed},
      {"sweep", "load_sweep", [] { return std::vector<std::string>{kSweep}; }, run_sweep},
  };
}

}  // namespace edgewise::fuzz
