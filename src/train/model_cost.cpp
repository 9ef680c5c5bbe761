#include <edgewise/train/model_cost.h>

#include <algorithm>
#include <array>
#include <numeric>

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/step.h>

namespace edgewise::train {
namespace {

// Bytes that torch's CPU allocator handed out and got back while this is the thread's listener. (A backward
// pass on the CPU runs on the thread that asks for it.)
class AllocationCounter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device device) override {
    if (!device.is_cpu()) return;
    current_ += size;
    peak_ = std::max(peak_, current_);
  }
  void reportOutOfMemory(int64_t, size_t, size_t, c10::Device) override {}
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }

 private:
  int64_t current_ = 0, peak_ = 0;
};

// The largest amount of memory that `work` holds at once beyond what was there before.
template <typename Work>
double peak_bytes(c10::Device device, const Work& work) {
  if (device.is_cpu()) {
    const auto counter = std::make_shared<AllocationCounter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
    work();
    return static_cast<double>(counter->peak());
  }
  const auto index = device.has_index() ? device.index() : c10::DeviceIndex{0};
  auto* allocator = c10::getDeviceAllocator(device.type());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  allocator->resetPeakStats(index);
  const auto before = allocator->getDeviceStats(index).allocated_bytes[kAll].current;
  work();
  return static_cast<double>(allocator->getDeviceStats(index).allocated_bytes[kAll].peak - before);
}

// One training step on random tokens, twice: gradients and other things that stay are there before the
// second.
struct Measured {
  double density = 1;
  double memory_per_example = 0;
};
Measured measure(const Recipe& recipe, const CostOptions& options, const data::Dataset& dataset) {
  const ModelPtr model = build_model(recipe, dataset);
  model->to(options.device);
  model->train();
  std::vector<int64_t> indices(static_cast<size_t>(options.batch));
  std::iota(indices.begin(), indices.end(), 0);
  const data::Batch batch = dataset.batch(data::Split::kTrain, indices);
  const StepOptions step{.micro_batch = 0,
                         .density_weight = recipe.train.density_weight,
                         .count_padding = density_counts_padding(recipe),
                         .device = options.device,
                         .precision = parse_precision(recipe.train.precision)};
  Measured result;
  for (int repeat = 0; repeat < 2; ++repeat) {
    result.memory_per_example =
        peak_bytes(options.device,
                   [&] {
                     const RandomStream random{.seed = static_cast<uint64_t>(recipe.train.seed)};
                     result.density =
                         accumulate_gradients(*model, batch, step, random).density.mean().item<double>();
                   }) /
        static_cast<double>(options.batch);
  }
  return result;
}

double repeated(const Operations& operations, int64_t times) {
  return flops(operations) * static_cast<double>(times);
}

}  // namespace

Recipe dense_recipe(const Recipe& recipe) {
  Recipe result = recipe;
  result.attention.kind = "dense";
  return result;
}

RecipeCost recipe_cost(const Recipe& recipe, const CostOptions& options) {
  TORCH_CHECK_VALUE(
      recipe.data.name != "characters",
      "cost: expected a classifier; got a language model, whose causal attention has no formula here yet");
  const AttentionKind& kind = attention_kind(recipe);
  TORCH_CHECK_VALUE(kind.cost, "cost: expected an attention whose operations are counted; got '", kind.name,
                    "', which has no formula here yet");
  TORCH_CHECK_VALUE(options.batch > 0, "cost: expected a batch of at least 1; got ", options.batch);
  Recipe sized = recipe;
  const auto dataset = noise_dataset(recipe, options.length);
  sized.model.max_length = dataset->max_length();
  const LayerAttention made = kind.make(sized, sized.model.max_length);
  const bool over_edges = static_cast<bool>(made.edges);

  RecipeCost cost;
  cost.length = dataset->max_length();
  if (options.memory || (over_edges && !options.density)) {
    const Measured measured = measure(sized, options, *dataset);
    cost.density = cost.memory_density = measured.density;
    if (options.memory) cost.memory_per_example = measured.memory_per_example;
  }
  if (over_edges && options.density) cost.density = *options.density;
  if (made.method) cost.density = cost.memory_density = made.method(0)->density(cost.length);

  constexpr std::array<int64_t, 1> kFirst = {0};
  const auto towers = static_cast<int64_t>(dataset->batch(data::Split::kTrain, kFirst).tokens.size());
  const ModelRecipe& model = recipe.model;
  const auto n = static_cast<double>(cost.length), width = static_cast<double>(model.dim),
             hidden = static_cast<double>(ClassifierOptions().hidden),
             classes = static_cast<double>(dataset->classes());
  cost.attention = kind.cost(recipe, {.n = n,
                                      .d = static_cast<double>(model.head_dim()),
                                      .density = cost.density,
                                      .device = options.device});
  cost.attention_flops = repeated(cost.attention, towers * model.layers * model.heads);
  const double projections = made.shared_qk ? 2 : 3;
  cost.model_flops = cost.attention_flops +
                     repeated(layer_operations(n, width, static_cast<double>(model.hidden), projections),
                              towers * model.layers) +
                     (dataset->labels_tokens()
                          ? 2 * n * width * classes
                          : flops(classifier_operations(towers == 2 ? 4 * width : width, hidden, classes)));
  return cost;
}

}  // namespace edgewise::train
