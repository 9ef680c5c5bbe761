// edgewise eval: a trained run on a split.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <edgewise/data/examples/text_reader.h>
#include <edgewise/io/atomic_file.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/checkpoint.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/metrics.h>
#include <edgewise/train/progress.h>
#include <edgewise/train/recipe.h>
#include <edgewise/train/task_kinds.h>
#include <edgewise/train/trainer.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "command.h"
#include "data/datasets.h"
#include "folders.h"
#include "predict/answers.h"
#include "runs.h"
#include "table.h"
#include "train/run/run_folder.h"
#include "train/run/run_records.h"
#include "validators.h"

namespace edgewise::app {
namespace {

struct EvalArguments {
  std::string run, split = "test", checkpoint;  // checkpoint empty: best, or last before there is a best
  int64_t draws = 0;
  std::optional<int64_t> seed;
  std::vector<std::string> overrides;
  bool record = false, json = false;
  std::string predictions;  // a file; empty: none
  std::string written;      // a folder; empty: none
};

// On a terminal with a bar while it lasts; in a log with a line now and then when it takes long.
train::Evaluation evaluate_shown(Model& model, const tasks::Task& task, data::Split split,
                                 train::EvaluationOptions options) {
  train::ProgressOptions bar;
  bar.label = "eval";
  bar.total = task.data().size(split);
  bar.unit = "example";
  bar.transient = true;
  train::Progress progress(bar);
  options.progress = [&](int64_t done, int64_t) { progress.update(done); };
  train::Evaluation result = train::evaluate(model, task, split, options);
  progress.finish();
  TORCH_CHECK_VALUE(std::isfinite(result.loss), "eval: expected a finite loss; got ", result.loss,
                    ". The run's weights hold NaN or infinity: choose another checkpoint, or train again");
  return result;
}

// What was evaluated, and what came of it.
struct Evaluated {
  std::string run, split, checkpoint;
  int64_t step = 0;
  std::string averages;  // which weights, if not those of the last step; else empty
  train::Evaluation result;
};

// best.safetensors of a run with averages has them for its weights; last.safetensors has both, and the
// averages are loaded.
std::string averages_of(const train::Recipe& recipe, const train::CheckpointInfo& info) {
  if (info.averages.empty() && recipe.train.average <= 0) return {};
  std::ostringstream text;
  text << "averaged";
  if (recipe.train.average > 0) text << " (train.average = " << recipe.train.average << ")";
  return text.str();
}

// Adds to the run's metrics what the end of its training would have.
void record(const Evaluated& found, const std::filesystem::path& folder, int64_t last_step) {
  train::MetricsWriter writer(folder);
  writer.write(train::evaluation_record("test", last_step, data::parse_split(found.split), found.result));
  std::cerr << "recorded as the run's test in " << writer.path().string() << "\n";
}

std::string json_of(const Evaluated& found, const tasks::Task& task, data::Split split) {
  const train::Evaluation& result = found.result;
  train::MetricRecord record = {{"run", found.run},
                                {"split", found.split},
                                {"checkpoint", found.checkpoint},
                                {"step", found.step},
                                {"weights", std::string(found.averages.empty() ? "trained" : "averaged")},
                                {"loss", result.loss}};
  if (result.metric->counts_right) record.emplace_back("accuracy", result.accuracy);
  record.insert(record.end(), {{"density", result.density.mean().item<double>()},
                               {"densities", train::values_of(result.density)},
                               {"layers", result.density.size(0)},
                               {"heads", result.density.size(1)},
                               {"examples", result.examples}});
  train::add_figures(record, result);
  train::MetricRecord beside;
  for (const data::Baseline& baseline : task.baselines(split))
    beside.push_back({baseline.name, baseline.value});
  std::string line = train::to_json_line(record);
  line.pop_back();  // "}": records hold no records, so the baselines are put in here
  return line + ", \"baselines\": " + train::to_json_line(beside) + "}";
}

void print_table(const Evaluated& found, const tasks::Task& task, data::Split split) {
  const train::Evaluation& result = found.result;
  Table table({"quantity", "value"});
  table.add({"checkpoint", found.checkpoint + " (step " + std::to_string(found.step) + ")"});
  if (!found.averages.empty()) table.add({"weights", found.averages});
  table.add({found.split + " examples", std::to_string(result.examples)});
  table.add({result.metric->words, shown(*result.metric, result.value())});
  for (const data::Baseline& baseline : task.baselines(split))
    table.add({"  " + baseline.name, shown(*result.metric, baseline.value)});
  if (result.metric->name != "accuracy" && result.metric->counts_right)
    table.add({"accuracy", percent(result.accuracy)});
  for (const tasks::Figure& figure : result.figures)
    if (figure.name != "accuracy" && figure.name != result.metric->name) {
      if (figure.name == "bits_per_byte") {
        table.add({"bits per byte", fixed(figure.value, 4)});
      } else if (result.texts.empty()) {
        const tasks::Metric& metric = tasks::metric_named(figure.name);
        table.add({metric.words, shown(metric, figure.value)});
      } else {  // of a set of texts
        table.add({figure.name, percent(figure.value)});
      }
    }
  table.add({"loss", fixed(result.loss, 4)});
  if (result.edge_precision) table.add({"chosen edges that are right", percent(*result.edge_precision)});
  if (result.edge_recall) table.add({"right edges that are chosen", percent(*result.edge_recall)});
  if (result.policy) {
    table.add({result.metric->words + ", sampled edges", shown(*result.metric, result.policy->sampled)});
    table.add({result.metric->words + ", greedy edges", shown(*result.metric, result.policy->greedy)});
    table.add({"entropy of a prediction, nats", fixed(result.policy->entropy, 3)});
  }
  for (int64_t layer = 0; layer < result.density.size(0); ++layer) {
    std::string heads;
    for (int64_t head = 0; head < result.density.size(1); ++head)
      heads += (head ? "  " : "") + percent(result.density[layer][head].item<double>());
    table.add({"density, layer " + std::to_string(layer), heads});
  }
  table.print(std::cout);
}

// A line of JSON for every example: where it stood in its file, the right answer, the given one.
class Predictions {
 public:
  Predictions(const std::string& file, const tasks::Task& task, data::Split split)
      : file_(file), data_(task.data()), split_(split), form_{.reader = task.data().reader()} {
    const std::vector<int64_t> first = {0};
    TORCH_CHECK_VALUE(data_.batch(split, first).labels.dim() == 1,
                      "eval --predictions: expected a task with one answer an example; ", data_.name(),
                      " has one for every token");
  }

  void add(const std::vector<int64_t>& indices, const at::Tensor& logits) {
    const at::Tensor labels = data_.batch(split_, indices).labels;
    const bool are_numbers = labels.is_floating_point();
    at::Tensor values = logits.to(at::kCPU, at::kDouble);
    const data::TextReaderOptions units = form_.reader ? form_.reader->options() : data::TextReaderOptions();
    if (are_numbers) values = values * units.scale + units.mean;
    for (size_t item = 0; item < indices.size(); ++item) {
      const auto place = static_cast<int64_t>(item);
      nlohmann::ordered_json line = {{"line", data_.line(split_, indices[item])}};
      if (are_numbers)
        line["right"] = labels[place].item<double>() * units.scale + units.mean;
      else
        line["right"] = class_json(labels[place].item<int64_t>(), form_);
      add_answer(line, values[place], form_);
      file_.write(line_of(line));
    }
    examples_ += std::ssize(indices);
  }

  void finish() {
    file_.commit();
    std::cerr << counted(examples_, "answer") << " in " << file_.target().string() << "\n";
  }

 private:
  io::AtomicFile file_;
  const data::Dataset& data_;
  data::Split split_;
  AnswerForm form_;
  int64_t examples_ = 0;
};

int run(const EvalArguments& arguments) {
  const std::filesystem::path folder(arguments.run);
  expect_run_folder(folder, "config.toml", "eval");
  const train::Recipe recipe = train::load_recipe((folder / "config.toml").string(), arguments.overrides);
  if (recipe.train.threads > 0) at::set_num_threads(static_cast<int>(recipe.train.threads));
  const data::Split split = data::parse_split(arguments.split);
  // Before the data: who would make it for a run without weights would do so for nothing.
  const std::string file = checkpoint_file(folder, arguments.checkpoint, "eval");
  const tasks::TaskPtr task = train::open_task(recipe);
  if (const std::string reader = train::RunFolder{.root = folder}.reader();
      data::TextReader::is_in(reader) && task->data().reader())
    TORCH_CHECK_VALUE(
        data::TextReader::load(reader).reads_like(*task->data().reader()),
        "eval: expected data in the tokens that ", folder.string(),
        " was trained on; its numbers stand for other pieces of text. Make the data with --tokenizer ",
        (std::filesystem::path(reader) / "tokenizer").string());
  const std::string difference = other_data(folder, task->data());
  TORCH_CHECK_VALUE(!arguments.record || difference.empty(), "eval --record: ", difference,
                    ". A run's record is of its own data; without --record any data will do.");
  int64_t last_step = 0;
  if (arguments.record) {
    const Run known = read_run(folder.string(), "eval --record");
    TORCH_CHECK_VALUE(!known.test, "eval --record: expected a run that was stopped before its own test; ",
                      folder.string(), " has one, ", known.judged_by, " ",
                      shown_figure(known.judged_by, known.test->accuracy),
                      ". Without --record any checkpoint can be evaluated");
    last_step = known.steps;
  }
  const ModelPtr model = train::build_model(recipe, *task);
  const train::CheckpointInfo info = train::load_checkpoint(file, *model);
  task->check_model(*model);
  const at::Device device = train::parse_device(recipe.train.device);
  model->to(device);
  model->eval();
  train::EvaluationOptions options;
  options.batch_size = recipe.train.micro_batch;
  options.seed = static_cast<uint64_t>(arguments.seed.value_or(recipe.train.seed));
  options.draws = arguments.draws > 0 ? arguments.draws : recipe.train.eval_draws;
  options.count_padding = train::density_counts_padding(recipe);
  options.count_valid = split == data::Split::kTest;  // as training has it
  options.writes = split != data::Split::kTrain;
  options.device = device;
  options.precision = train::parse_precision(recipe.train.precision);
  std::optional<Predictions> predictions;
  if (!arguments.predictions.empty()) {
    predictions.emplace(arguments.predictions, *task, split);
    options.answers = [&](const std::vector<int64_t>& indices, const at::Tensor& logits) {
      predictions->add(indices, logits);
    };
  }
  const train::Evaluation result = evaluate_shown(*model, *task, split, std::move(options));
  const Evaluated found = {arguments.run, arguments.split,           file,
                           info.step,     averages_of(recipe, info), result};
  if (predictions) predictions->finish();
  TORCH_CHECK_VALUE(arguments.written.empty() || !result.texts.empty(),
                    "eval --written: expected a run that writes texts, such as translations; ", arguments.run,
                    " was trained on ", recipe.data.name);
  if (!arguments.written.empty()) train::save_texts(arguments.written, result.texts);
  if (arguments.record) record(found, folder, last_step);
  if (arguments.json)
    std::cout << json_of(found, *task, split) << "\n";
  else
    print_table(found, *task, split);
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
                   "mean, best or last; default: mean where there is one (train.average_last), else best, or "
                   "last before the first validation")
      ->check(one_of({"mean", "best", "last"}));
  command
      ->add_option("--draws", arguments->draws,
                   "average the logits of so many draws of the edges; default: the recipe's")
      ->check(whole_number(1));
  command->add_option("--seed", arguments->seed, "seed of the edges; default: the recipe's")
      ->check(whole_number(0));
  command->add_option("--set", arguments->overrides, "override a key of the run's recipe")
      ->allow_extra_args(false);
  command->add_flag(
      "--record", arguments->record,
      "add the test figures to the run's metrics.jsonl, for a run that was stopped before its own");
  command->add_option("--predictions", arguments->predictions,
                      "file for the answer to every example, a line of JSON each");
  command->add_option("--written", arguments->written,
                      "folder for what the model writes, such as translations: a file for every test set");
  command->add_flag("--json", arguments->json, "one JSON object instead of a table");
  command->callback([&action, arguments] {
    if (arguments->record && arguments->split != "test")
      throw CLI::ValidationError("--record: expected --split test; got " + arguments->split +
                                 ". A run's own record has validation figures already");
    action = [arguments] { return run(*arguments); };
  });
}

}  // namespace edgewise::app
