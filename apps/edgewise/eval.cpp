// edgewise eval: a trained run on a split.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <edgewise/data/characters.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/progress.h>
#include <edgewise/train/recipe.h>
#include <edgewise/train/trainer.h>

#include <filesystem>
#include <iostream>

#include "command.h"
#include "datasets.h"
#include "runs.h"
#include "table.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct EvalArguments {
  std::string run, split = "test", checkpoint;  // checkpoint empty: best, or last before there is a best
  int64_t draws = 0;
  std::optional<int64_t> seed;
  std::vector<std::string> overrides;
  bool record = false, json = false;
};

// On a terminal with a bar while it lasts; in a log with a line now and then when it takes long.
train::Evaluation evaluate_shown(Model& model, const data::Dataset& dataset, data::Split split,
                                 train::EvaluationOptions options) {
  train::ProgressOptions bar;
  bar.label = "eval";
  bar.total = dataset.size(split);
  bar.unit = "example";
  bar.transient = true;
  train::Progress progress(bar);
  options.progress = [&](int64_t done, int64_t) { progress.update(done); };
  train::Evaluation result = train::evaluate(model, dataset, split, options);
  progress.finish();
  return result;
}

int run(const EvalArguments& arguments) {
  const std::filesystem::path folder(arguments.run);
  TORCH_CHECK_VALUE(std::filesystem::exists(folder / "config.toml"), "eval: ", folder.string(),
                    " is not a run folder (it has no config.toml); edgewise train makes one");
  const train::Recipe recipe = train::load_recipe((folder / "config.toml").string(), arguments.overrides);
  if (recipe.train.threads > 0) at::set_num_threads(static_cast<int>(recipe.train.threads));
  const data::Split split = data::parse_split(arguments.split);
  TORCH_CHECK_VALUE(!arguments.record || split == data::Split::kTest,
                    "eval: expected --split test with --record; got ", arguments.split,
                    ". A run's own record has validation figures already.");
  const auto dataset = open_dataset(recipe);
  const std::string difference = other_data(folder, *dataset);
  TORCH_CHECK_VALUE(!arguments.record || difference.empty(), "eval --record: ", difference,
                    ". A run's record is of its own data; without --record any data will do.");
  const ModelPtr model = train::build_model(recipe, *dataset);
  const std::string file = checkpoint_file(folder, arguments.checkpoint, "eval");
  const train::CheckpointInfo info = train::load_checkpoint(file, *model);
  train::check_vocabulary(*model, *dataset);
  const at::Device device = train::parse_device(recipe.train.device);
  model->to(device);
  model->eval();
  train::EvaluationOptions options;
  options.batch_size = recipe.train.micro_batch;
  options.seed = static_cast<uint64_t>(arguments.seed.value_or(recipe.train.seed));
  options.draws = arguments.draws > 0 ? arguments.draws : recipe.train.eval_draws;
  options.count_padding = train::density_counts_padding(recipe);
  options.device = device;
  options.precision = train::parse_precision(recipe.train.precision);
  const train::Evaluation result = evaluate_shown(*model, *dataset, split, std::move(options));
  if (arguments.record) {
    const at::Tensor flat = result.density.to(at::kCPU, at::kDouble).flatten().contiguous();
    train::MetricRecord record = {
        {"kind", "test"},
        {"step", info.step},
        {"split", arguments.split},
        {"loss", result.loss},
        {"accuracy", result.accuracy},
        {"density",
         std::vector<double>(flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel())}};
    if (result.bits_per_character) record.push_back({"bits_per_character", *result.bits_per_character});
    train::MetricsWriter(folder).write(record);
  }
  if (arguments.json) {
    train::MetricRecord record = {
        {"run", folder.string()},      {"split", arguments.split},
        {"step", info.step},           {"loss", result.loss},
        {"accuracy", result.accuracy}, {"density", result.density.mean().item<double>()},
        {"examples", result.examples}};
    if (result.bits_per_character) record.push_back({"bits_per_character", *result.bits_per_character});
    if (result.edge_precision) record.push_back({"edge_precision", *result.edge_precision});
    if (result.edge_recall) record.push_back({"edge_recall", *result.edge_recall});
    std::cout << train::to_json_line(record) << "\n";
    return 0;
  }
  Table table({"quantity", "value"});
  table.add({"checkpoint", file + " (step " + std::to_string(info.step) + ")"});
  table.add({arguments.split + " examples", std::to_string(result.examples)});
  if (result.bits_per_character) table.add({"bits per character", fixed(*result.bits_per_character, 4)});
  if (const auto* text = dynamic_cast<const data::Characters*>(dataset.get()))
    table.add({"  letter frequencies alone", fixed(text->unigram_bits(), 4)});
  table.add({"accuracy", percent(result.accuracy)});
  for (const Baseline& baseline : baselines(*dataset, split))
    table.add({"  " + baseline.name, percent(baseline.accuracy)});
  table.add({"loss", fixed(result.loss, 4)});
  if (result.edge_precision) table.add({"chosen edges that are right", percent(*result.edge_precision)});
  if (result.edge_recall) table.add({"right edges that are chosen", percent(*result.edge_recall)});
  for (int64_t layer = 0; layer < result.density.size(0); ++layer) {
    std::string heads;
    for (int64_t head = 0; head < result.density.size(1); ++head)
      heads += (head ? "  " : "") + percent(result.density[layer][head].item<double>());
    table.add({"density, layer " + std::to_string(layer), heads});
  }
  table.print(std::cout);
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App* command = app.add_subcommand("eval", "Evaluate a trained run");
  command->add_option("run", arguments->run, "run folder, e.g. runs/demo/edgewise")->required();
  command->add_option("--split", arguments->split, "train, validation or test")
      ->capture_default_str()
      ->check(one_of({"train", "validation", "test"}));
  command
      ->add_option("--checkpoint", arguments->checkpoint,
                   "best or last; default: best, or last before the first validation")
      ->check(one_of({"best", "last"}));
  command
      ->add_option("--draws", arguments->draws,
                   "average the logits of so many draws of the edges; default: the recipe's")
      ->check(whole_number(1));
  command->add_option("--seed", arguments->seed, "seed of the edges; default: the recipe's")
      ->check(whole_number(0));
  command->add_option("--set", arguments->overrides, "override a key of the run's recipe")
      ->allow_extra_args(false);
  command->add_flag("--record", arguments->record,
                    "add the test figures to the run's metrics, for a run that was stopped before its own");
  command->add_flag("--json", arguments->json, "one JSON object instead of a table");
  command->callback([&action, arguments] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace edgewise::app
