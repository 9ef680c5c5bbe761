// Training with passes replayed from CUDA graphs: the same bits as without, whatever differs from step to
// step.
#include <edgewise/data/characters.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/optimizer.h>
#include <edgewise/train/pass_graphs.h>
#include <edgewise/train/recipe.h>
#include <edgewise/train/step.h>
#include <edgewise/train/trainer.h>

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "kit/devices.h"
#include "kit/message_of.h"
#include "kit/recorded.h"
#include "kit/scratch_folder.h"
#include "ops/step_graph.h"
#include "ops/step_inputs.h"

namespace edgewise::train::graphs_on_cuda {
namespace {

using testing::HasSubstr;

class CudaGraph : public kit::CudaTest {};

// Sequences of 20 to 128 tokens, so that batches differ in length, padding and number of pairs.
class Words : public data::Dataset {
 public:
  std::string name() const override { return "words"; }
  int64_t size(data::Split) const override { return 256; }
  int64_t vocabulary() const override { return 16; }
  int64_t classes() const override { return 4; }
  int64_t max_length() const override { return 128; }
  int64_t length(data::Split, int64_t index) const override { return 20 + index * 37 % 109; }
  Batch batch(data::Split split, std::span<const int64_t> indices) const override {
    int64_t longest = 0;
    for (const int64_t index : indices) longest = std::max(longest, length(split, index));
    const auto items = static_cast<int64_t>(indices.size()), width = (longest + 63) / 64 * 64;
    Batch result;
    result.towers = {
        {.tokens = at::zeros({items, width}, at::kLong), .mask = at::zeros({items, width}, at::kBool)}};
    result.labels = at::zeros({items}, at::kLong);
    for (int64_t n = 0; n < items; ++n) {
      const int64_t index = indices[static_cast<size_t>(n)], count = length(split, index);
      result.towers[0]
          .tokens[n]
          .narrow(0, 0, count)
          .copy_((at::arange(count, at::kLong) * (index + 3)).remainder(15) + 1);
      result.towers[0].mask[n].narrow(0, 0, count).fill_(true);
      result.labels[n] = index % 4;
    }
    result.trim_multiple = 64;
    return result;
  }
};

std::shared_ptr<data::Dataset> words() {
  return std::make_shared<Words>();
}
std::shared_ptr<data::Dataset> letters() {
  std::vector<uint8_t> text;
  for (size_t n = 0; text.size() < 20000; ++n)
    text.push_back(static_cast<uint8_t>('a' + (n * n + n / 5) % 7));
  return std::make_shared<data::Characters>("letters", std::move(text), 64);
}

bool is_text(const data::Dataset& dataset) {
  return !dataset.bytes().empty();
}

Recipe recipe_of(const data::Dataset& dataset, std::vector<std::string> overrides) {
  const std::vector<std::string> common = {"model.dim=64",           "model.heads=2",
                                           "train.device=cuda",      "train.batch=8",
                                           "train.micro_batch=4",    "train.steps=20",
                                           "train.warmup_steps=5",   "train.learning_rate=3e-3",
                                           "train.grad_clip=0.5",    "train.density_weight=0.1",
                                           "train.density_warmup=10"};
  overrides.insert(overrides.begin(), common.begin(), common.end());
  return parse_recipe(is_text(dataset) ? "[data]\nname = \"characters\"\nlength = 64\npath = \"made here\"\n"
                                       : "[data]\nname = \"listops\"\npath = \"made here\"\n",
                      "test", overrides);
}

// The same words with holes: every third token is left out, the rest say where they stand.
class WordsWithHoles : public Words {
 public:
  Batch batch(data::Split split, std::span<const int64_t> indices) const override {
    Batch result = Words::batch(split, indices);
    const at::Tensor kept = at::arange(result.towers[0].tokens.size(1), at::kLong);
    const at::Tensor places = kept.masked_select(kept.remainder(3) != 1);
    result.towers[0].tokens = result.towers[0].tokens.index_select(1, places);
    result.towers[0].mask = result.towers[0].mask.index_select(1, places);
    result.towers[0].positions = places.expand({result.size(), -1}).contiguous();
    result.sequence_length = max_length();
    result.trim_multiple = 0;
    return result;
  }
};

struct Trained {
  std::map<std::string, at::Tensor> tensors;  // parameters and moments
  std::vector<double> losses;
  std::vector<int64_t> edges;
  PassCounts counts;
};

Trained trained(const Recipe& recipe, const data::Dataset& dataset, PassGraphs* graphs) {
  torch::manual_seed(1);
  const ModelPtr model = build_model(recipe, dataset);
  model->to(at::kCUDA);
  model->train();
  Optimizer optimizer(*model);
  const Schedule schedule({.kind = ScheduleKind::kOneCycle,
                           .peak = recipe.train.learning_rate,
                           .steps = recipe.train.steps,
                           .warmup = recipe.train.warmup_steps});
  StepOptions options;
  options.device = at::kCUDA;
  options.micro_batch = recipe.train.micro_batch;
  options.precision = parse_precision(recipe.train.precision);
  options.count_padding = density_counts_padding(recipe);
  options.edge_samples = recipe.train.edge_samples;
  options.graphs = graphs;
  std::vector<at::Tensor> memories;
  Trained result;
  for (int64_t step = 0; step < recipe.train.steps; ++step) {
    std::vector<int64_t> items;
    for (int64_t n = 0; n < recipe.train.batch; ++n) items.push_back((step * 11 + n * 31) % 200);
    if (!is_text(dataset))
      std::ranges::sort(items, {}, [&](int64_t index) { return dataset.length(data::Split::kTrain, index); });
    options.density_weight = RisingWeight{.whole = recipe.train.density_weight,
                                          .start = recipe.train.density_start,
                                          .warmup = recipe.train.density_warmup}
                                 .at(step);
    optimizer.zero_grad();
    const StepReport report = accumulate_gradients(*model, dataset.batch(data::Split::kTrain, items), options,
                                                   {.seed = 5, .step = static_cast<uint64_t>(step)},
                                                   is_text(dataset) ? &memories : nullptr);
    optimizer.step(schedule.at(step), optimizer.gradient_norm(), recipe.train.grad_clip);
    model->after_step();
    result.losses.push_back(report.loss);
    result.edges.push_back(report.edges);
  }
  for (const auto& item : model->named_parameters()) result.tensors[item.key()] = item.value().detach().cpu();
  for (const auto& [name, tensor] : optimizer.state()) result.tensors[name] = tensor.cpu();
  if (graphs) result.counts = graphs->counts();
  return result;
}

void expect_same(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.edges, b.edges);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors)
    EXPECT_TRUE(at::equal(tensor, b.tensors.at(name)))
        << name << ": " << (tensor - b.tensors.at(name)).abs().max().item<double>();
}

struct Case {
  const char* name;
  std::vector<std::string> overrides;
  bool text = false;
};

TEST_F(CudaGraph, ReplayedPassesComputeTheSameBits) {
  // Torch's own backward passes may add in any order unless told otherwise.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  const std::vector<Case> cases = {
      {"edgewise", {"attention.kind=sbm", "train.precision=bf16"}},
      {"edgewise, few probes a row", {"attention.kind=sbm", "train.precision=bf16", "sbm.probes_per_row=1"}},
      {"edgewise, probes one by one",
       {"attention.kind=sbm", "train.precision=bf16", "sbm.probe_unit=1", "sbm.probes_per_row=1"}},
      {"edgewise, sampled penalty",
       {"attention.kind=sbm", "train.precision=bf16", "sbm.density_penalty=sampled"}},
      {"edgewise without dropout",
       {"attention.kind=sbm", "train.precision=bf16", "model.dropout=0", "model.attention_dropout=0"}},
      {"published", {"attention.kind=sbm", "sbm.preset=published", "train.precision=bf16"}},
      {"squares", {"attention.kind=sbm", "attention.unit=16", "train.precision=bf16"}},
      {"squares that begin rare, other widths",
       {"attention.kind=sbm", "attention.unit=16", "train.precision=bf16", "sbm.initial_density=0.1",
        "sbm.clusters=16", "sbm.probes_per_row=1"}},
      {"squares, fp32", {"attention.kind=sbm", "attention.unit=16"}},
      {"dense, bf16", {"train.precision=bf16"}},
      {"dense, fp32", {}},
      {"text, edgewise", {"attention.kind=sbm", "train.precision=bf16"}, true},
      {"text, squares beside a window",
       {"attention.kind=window+sbm", "attention.unit=16", "window.width=16", "train.precision=bf16"},
       true},
      {"text, Transformer-XL", {"attention.kind=transformer_xl", "transformer_xl.memory=64"}, true},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    const auto dataset = each.text ? letters() : words();
    const Recipe recipe = recipe_of(*dataset, each.overrides);
    PassGraphs graphs;
    const std::string failure = kit::message_of([&] {
      const Trained with = trained(recipe, *dataset, &graphs), without = trained(recipe, *dataset, nullptr);
      expect_same(with, without);
      EXPECT_GT(with.counts.recorded, 0);
      EXPECT_GT(with.counts.replayed, 20);
      EXPECT_EQ(with.counts.replayed + with.counts.ordinary, 40);
    });
    EXPECT_EQ(failure, "no error");
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_F(CudaGraph, ReplayedPassesTakePositions) {
  const WordsWithHoles dataset;
  const Recipe recipe =
      recipe_of(dataset, {"attention.kind=sbm", "train.precision=bf16", "model.pooling=mean_padded"});
  PassGraphs graphs;
  const Trained with = trained(recipe, dataset, &graphs);
  expect_same(with, trained(recipe, dataset, nullptr));
  EXPECT_GT(with.counts.replayed, 20);
}

TEST_F(CudaGraph, EveryDrawOfTheEdgesIsItsOwnReplay) {
  const Recipe recipe =
      recipe_of(*words(), {"attention.kind=sbm", "train.precision=bf16", "train.edge_samples=2"});
  PassGraphs graphs;
  const Trained with = trained(recipe, *words(), &graphs);
  expect_same(with, trained(recipe, *words(), nullptr));
  EXPECT_EQ(with.counts.replayed + with.counts.ordinary, 80);
}

// Passes with and without the penalty are recorded apart, and those without make room.
TEST_F(CudaGraph, APenaltyThatStartsLateIsRecordedThen) {
  const Recipe recipe = recipe_of(*words(), {"attention.kind=sbm", "train.precision=bf16",
                                             "train.density_start=10", "train.density_warmup=4"});
  PassGraphs graphs({.ordinary_passes = 1, .most_graphs = 2});
  const Trained with = trained(recipe, *words(), &graphs);
  expect_same(with, trained(recipe, *words(), nullptr));
  EXPECT_GT(with.counts.recorded, 2);
}

TEST_F(CudaGraph, ShapesBeyondTheLimitGoOnAsOrdinaryPasses) {
  const Recipe recipe =
      recipe_of(*words(), {"attention.kind=sbm", "train.precision=bf16", "train.density_warmup=0"});
  PassGraphs graphs({.ordinary_passes = 1, .most_graphs = 1});
  const Trained with = trained(recipe, *words(), &graphs), without = trained(recipe, *words(), nullptr);
  expect_same(with, without);
  EXPECT_EQ(with.counts.recorded, 1);
  EXPECT_GT(with.counts.replayed, 0);
  EXPECT_GT(with.counts.ordinary, 4);
}

// A learner that the kernels do not serve lists its edges, whose number the host must know.
TEST_F(CudaGraph, AStepThatWaitsForTheDeviceIsRefusedAndLeavesItUsable) {
  const Recipe recipe =
      recipe_of(*words(), {"attention.kind=sbm", "train.precision=bf16", "sbm.law=poisson"});
  PassGraphs graphs;
  const std::string message = kit::message_of([&] { trained(recipe, *words(), &graphs); });
  EXPECT_THAT(message, HasSubstr("train.cuda_graph"));
  EXPECT_THAT(message, HasSubstr("--set train.cuda_graph=false"));
  const Recipe served = recipe_of(*words(), {"attention.kind=sbm", "train.precision=bf16"});
  PassGraphs others;
  expect_same(trained(served, *words(), &others), trained(served, *words(), nullptr));
}

TEST_F(CudaGraph, ARunRecordsTheSameMetrics) {
  const kit::ScratchFolder scratch;
  const auto run = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> overrides = {"attention.kind=sbm", "train.precision=bf16", "train.log_every=5",
                                          "train.eval_every=10"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    TrainerOptions options;
    options.run_folder = scratch / name;
    options.progress = false;
    const auto dataset = letters();
    Trainer(recipe_of(*dataset, overrides), dataset, options).run();
    return kit::recorded_without_timings(scratch / name);
  };
  EXPECT_EQ(run("graphs", {"train.cuda_graph=true"}), run("ordinary", {}));
}

// Gradients of one pass, three times with nothing learned in between: ordinary, ordinary, replayed.
struct Gradients {
  std::vector<std::map<std::string, at::Tensor>> passes;
  std::vector<double> losses;
};
Gradients gradients_of_large_passes() {
  std::vector<uint8_t> bytes;
  for (size_t n = 0; bytes.size() < 40000; ++n)
    bytes.push_back(static_cast<uint8_t>('a' + (n * n + n / 5) % 7));
  const data::Characters text("letters", std::move(bytes), 256);
  const Recipe recipe = recipe_of(text, {"attention.kind=sbm", "data.length=256"});
  torch::manual_seed(1);
  const ModelPtr model = build_model(recipe, text);
  model->to(at::kCUDA);
  model->train();
  std::vector<int64_t> items(16);
  std::iota(items.begin(), items.end(), 0);
  PassGraphs graphs;
  StepOptions options;
  options.device = at::kCUDA;
  options.precision = Precision::kBf16;
  options.density_weight = 0.1;
  options.graphs = &graphs;
  Gradients result;
  for (int n = 0; n < 3; ++n) {
    model->zero_grad();
    std::vector<at::Tensor> memories;
    const StepReport report = accumulate_gradients(*model, text.batch(data::Split::kTrain, items), options,
                                                   {.seed = 5, .step = 3}, &memories);
    result.losses.push_back(report.loss);
    result.passes.emplace_back();
    for (const auto& item : model->named_parameters())
      if (item.value().grad().defined()) result.passes.back()[item.key()] = item.value().grad().cpu();
  }
  EXPECT_EQ(graphs.counts().replayed, 1);
  return result;
}
void expect_same(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a)
    EXPECT_TRUE(at::equal(tensor, b.at(name)))
        << name << ": " << ((tensor - b.at(name)).abs().max() / tensor.abs().max()).item<double>();
}

// The graph's own tensors may share memory, one after the other; what refresh() fills before a replay may
// not.
TEST_F(CudaGraph, InputsThatAreAddedWhileRecordingKeepTheirPlace) {
  static constexpr int64_t kBytes = 1 << 19;
  const ops::StepGraphs shared(at::kCUDA);
  ops::StepInputs inputs(at::kCUDA);
  at::Tensor copy;
  ops::StepGraph graph(shared, [&] {
    const ops::StepInputs::Recording recording(inputs);
    for (int n = 0; n < 3; ++n) at::full({kBytes}, 7, at::TensorOptions().dtype(at::kByte).device(at::kCUDA));
    copy = inputs.add([](const ops::StreamShift&) { return at::full({kBytes}, 3, at::kByte); }).clone();
  });
  inputs.refresh({});
  graph.replay();
  EXPECT_TRUE((copy == 3).all().item<bool>());
}

TEST_F(CudaGraph, LargeOrdinaryPassesRepeat) {
  const Gradients found = gradients_of_large_passes();
  EXPECT_EQ(found.losses[0], found.losses[1]);
  expect_same(found.passes[0], found.passes[1]);
}

TEST_F(CudaGraph, LargeReplayedPassesComputeTheSameBits) {
  const Gradients found = gradients_of_large_passes();
  EXPECT_EQ(found.losses[0], found.losses[2]);
  expect_same(found.passes[0], found.passes[2]);
}

// Whatever the order of adding: it is the same in every replay.
TEST_F(CudaGraph, LargeReplayedPassesRepeat) {
  const Gradients once = gradients_of_large_passes(), again = gradients_of_large_passes();
  EXPECT_EQ(once.losses[2], again.losses[2]);
  expect_same(once.passes[2], again.passes[2]);
  for (const auto& [name, tensor] : once.passes[2]) {
    const at::Tensor& ordinary = once.passes[0].at(name);
    EXPECT_LT(((tensor - ordinary).norm() / ordinary.norm()).item<double>(), 1e-2) << name;
  }
}

}  // namespace
}  // namespace edgewise::train::graphs_on_cuda
