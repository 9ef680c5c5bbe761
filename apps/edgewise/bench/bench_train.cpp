// edgewise bench train: training steps of a recipe (gradient and optimiser; no evaluation, no files) against
// the same recipe with dense attention, on the same batches, in turn; of the recipe's data, or over lengths
// (--n) and learned densities (--density) on random tokens. A run folder in place of a recipe is that run's
// recipe with its trained weights.
#include <edgewise/data/batches.h>
#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/model_cost.h>
#include <edgewise/train/optimizer.h>
#include <edgewise/train/pass_graphs.h>
#include <edgewise/train/recipe.h>
#include <edgewise/train/step.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <torch/cuda.h>

#include <filesystem>

#include "bench/bench.h"
#include "bench/bench_case.h"
#include "bench/bench_cells.h"
#include "folders.h"
#include "runs.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct Arguments {
  std::vector<std::string> recipes, overrides;
  std::vector<int64_t> lengths = {0};   // 0 = the recipe's data
  std::vector<double> densities = {1};  // 1 = as the model starts
  double seconds = 10;
  std::string from, plot;
  bool graph = false, json = false;
};

// A model of the recipe and what a step needs.
struct Contender {
  Contender(const train::Recipe& given, const tasks::Task& task)
      : recipe(given),
        device(train::parse_device(recipe.train.device)),
        model(train::build_model(recipe, task)),
        optimizer((model->to(device), *model), train::optimizer_options(recipe.train)) {
    model->train();
    if (!recipe.train.cuda_graph) return;
    const std::string reason = train::pass_graphs_refusal(recipe, task);
    TORCH_CHECK_VALUE(reason.empty(), "bench train: expected a recipe that CUDA graphs can serve; ", reason);
    graphs.emplace();
  }

  train::StepReport step(const Batch& batch, uint64_t number) {
    // Nothing is learned while it is measured, so that the density stays.
    return step(batch, number, {.learning_rate = 0, .beta1 = 0.9}, recipe.train.density_weight);
  }

  // Trains with little but the density to lose until it is at most `wanted`.
  void reach_density(double wanted, const std::vector<Batch>& batches) {
    TORCH_CHECK_VALUE(train::attention_kind(recipe).reads("sbm"),
                      "bench train --density: expected attention that learns its density (sbm); ",
                      "the recipe has ", recipe.attention.kind, ". Leave --density out");
    constexpr uint64_t kMostSteps = 4000;
    double density = 1;
    for (uint64_t number = 0; number < kMostSteps && density > wanted; ++number) {
      const double rate = density > 2 * wanted ? 5e-4 : 1e-4;  // slowly towards the end, not to miss it
      density = step(batches[number % batches.size()], number, {.learning_rate = rate, .beta1 = 0.9},
                     /*density_weight=*/30)
                    .density.mean()
                    .item<double>();
    }
    TORCH_CHECK(density <= wanted, "bench train: expected a density of at most ", wanted, " after ",
                kMostSteps, " steps; it is ", density, ". Try a larger one");
  }

  train::StepReport step(const Batch& batch, uint64_t number, const train::SchedulePoint& point,
                         double density_weight) {
    train::StepOptions options;
    options.micro_batch = recipe.train.micro_batch;
    options.density_weight = density_weight;
    options.count_padding = train::density_counts_padding(recipe);
    options.edge_samples = recipe.train.edge_samples;
    options.precision = train::parse_precision(recipe.train.precision);
    options.device = device;
    if (graphs) options.graphs = &*graphs;
    optimizer.zero_grad();
    const train::PendingReport report = train::begin_gradients(
        *model, batch, options, {.seed = 0, .step = number, .layer = 0, .first_item = 0});
    optimizer.step(point, optimizer.gradient_norm(), recipe.train.grad_clip);
    if (device.is_cuda()) torch::cuda::synchronize();
    return report.read();
  }

  train::Recipe recipe;
  at::Device device;
  ModelPtr model;
  train::Optimizer optimizer;
  std::optional<train::PassGraphs> graphs;
};

BenchCase measure_recipe(const std::string& place, int64_t length, double wanted, bool graph,
                         const Arguments& a) {
  const bool is_run = std::filesystem::is_directory(place);
  if (is_run) expect_run_folder(place, "config.toml", "bench train");
  TORCH_CHECK_VALUE(!is_run || length == 0, "bench train --n: expected recipes; got the run ", place,
                    ", whose weights are of the lengths of its data. Leave --n out");
  const std::string path = is_run ? (std::filesystem::path(place) / "config.toml").string() : place;
  std::vector<std::string> overrides = a.overrides;
  if (graph) overrides.push_back("train.cuda_graph=true");
  if (length > 0) overrides.push_back("model.max_length=" + std::to_string(length));
  std::vector<std::string> dense_overrides = overrides;
  for (const char* const dense : {"attention.kind=dense", "attention.unit=1"})
    dense_overrides.push_back(dense);
  const train::Recipe recipe = train::load_recipe(path, overrides);
  if (recipe.train.threads > 0) at::set_num_threads(static_cast<int>(recipe.train.threads));
  const tasks::TaskPtr task =
      length > 0 ? task_over(recipe, train::noise_dataset(recipe, length)) : train::open_task(recipe);
  const data::Dataset& dataset = task->data();
  Contender mine(recipe, *task), dense(train::load_recipe(path, dense_overrides), *task);
  if (is_run) train::load_checkpoint(checkpoint_file(place, "", "bench train"), *mine.model);
  // A few batches, the same for both; their making is not measured.
  constexpr int64_t kBatches = 4;
  const auto order = task->training_order(recipe.train.batch, static_cast<uint64_t>(recipe.train.seed));
  std::vector<Batch> batches;
  double tokens = 0;
  for (int64_t n = 0; n < kBatches; ++n) {
    batches.push_back(dataset.batch(data::Split::kTrain, order->indices(n)));
    for (const Tower& tower : batches.back().towers)
      if (tower.mask.defined()) tokens += tower.mask.sum().item<double>() / kBatches;
  }
  if (wanted < 1) mine.reach_density(wanted, batches);
  // Graphs are recorded when a shape has been seen a few times.
  if (recipe.train.cuda_graph)
    for (uint64_t n = 0; n < 3 * kBatches; ++n)
      for (Contender* contender : {&mine, &dense}) contender->step(batches[n % kBatches], n);
  double density = 0;
  uint64_t mine_step = 0, dense_step = 0;
  const std::vector<Timing> times = measure_together(
      {[&] {
         density = mine.step(batches[mine_step % kBatches], mine_step).density.mean().item<double>();
         ++mine_step;
       },
       [&] {
         dense.step(batches[dense_step % kBatches], dense_step);
         ++dense_step;
       }},
      a.seconds);
  BenchCase found{"train " + place + (recipe.train.cuda_graph ? " (graphs)" : ""),
                  dataset.max_length(),
                  recipe.model.head_dim(),
                  density,
                  recipe.train.precision,
                  times[0],
                  times[1]};
  found.tokens = tokens;
  found.batch = recipe.train.batch;
  found.device = recipe.train.device;
  found.asked = wanted;
  return found;
}

train::ProgressFields cell_name(const std::string& recipe, int64_t length, double density, bool graph) {
  train::ProgressFields name = {{"recipe", recipe}};
  if (length > 0) name.push_back({"n", std::to_string(length)});
  if (density < 1) name.push_back({"density", percent(density, 1)});
  if (graph) name.push_back({"graphs", "yes"});
  return name;
}

int run(const Arguments& a) {
  CaseReport report(a.json);
  if (const auto folder = std::filesystem::path(a.plot).parent_path(); !folder.empty())
    TORCH_CHECK_VALUE(std::filesystem::is_directory(folder), "bench train --plot: expected ", a.plot,
                      " in a folder that exists; ", folder.string(), " does not");
  const auto draw = [&] {
    if (!a.plot.empty()) report.plot(a.plot);
    return 0;
  };
  if (!a.from.empty()) {
    report.read(a.from);
    report.print();
    return draw();
  }
  std::vector<Cell> cells;
  for (const std::string& recipe : a.recipes)
    for (const int64_t length : a.lengths)
      for (const double density : a.densities)
        for (const bool graph : a.graph ? std::vector<bool>{false, true} : std::vector<bool>{false})
          cells.push_back({cell_name(recipe, length, density, graph), [=, &a, &report] {
                             const BenchCase found = measure_recipe(recipe, length, density, graph, a);
                             return [=, &report] { report.add(found); };
                           }});
  measure_cells("bench train", cells, [&] { report.print(); });
  return draw();
}

}  // namespace

void add_bench_train(CLI::App& bench, Action& action) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand(
      "train", "Training steps of a recipe, against the same recipe with dense attention");
  // What is measured; rows of before are as they are.
  const std::vector<CLI::Option*> measured = {
      command->add_option(
          "recipe", arguments->recipes,
          "recipes, e.g. recipes/lra/listops/sbm-edgewise.toml, or run folders: their recipes "
          "with the weights that were trained"),
      command
          ->add_option("--set", arguments->overrides,
                       "override a key of the recipes, e.g. --set train.batch=8; repeat the flag for more")
          ->allow_extra_args(false),
      command
          ->add_option("--n", arguments->lengths, "sequence lengths, of random tokens; 0 = the recipe's data")
          ->check(whole_number(0)),
      command
          ->add_option(
              "--density", arguments->densities,
              "densities, up to 1, that the edges are first trained down to; 1 = as the model starts")
          ->check(number_between(1e-6, 1)),
      command->add_option("--seconds", arguments->seconds, "time per contender")
          ->capture_default_str()
          ->check(number_above(0)),
      command->add_flag("--graph", arguments->graph,
                        "measure all once more with passes replayed from CUDA graphs (train.cuda_graph)")};
  CLI::Option* const from =
      command->add_option("--from", arguments->from, "instead: the lines that --json wrote, from a file")
          ->check(CLI::ExistingFile);
  for (CLI::Option* option : measured) from->excludes(option);
  command->add_option("--plot", arguments->plot, "an SVG file: time over that of dense attention, over n");
  command->add_flag("--json", arguments->json, "one JSON object per line");
  command->callback([&action, arguments, from] {
    if (arguments->recipes.empty() && from->empty()) throw CLI::RequiredError("a recipe, or --from,");
    action = [arguments] { return run(*arguments); };
  });
}

}  // namespace edgewise::app
