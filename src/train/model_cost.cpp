#include <edgewise/train/model_cost.h>

#include <algorithm>
#include <numeric>

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <edgewise/train/attention_kinds.h>
#include <edgewise/train/build_model.h>
#include <edgewise/train/evaluate.h>
#include <edgewise/train/step.h>
#include <edgewise/train/task_kinds.h>

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
Measured measure(const Recipe& recipe, const CostOptions& options, const tasks::Task& task) {
  const ModelPtr model = build_model(recipe, task);
  model->to(options.device);
  model->train();
  std::vector<int64_t> indices(static_cast<size_t>(options.batch));
  std::iota(indices.begin(), indices.end(), 0);
  const Batch batch = task.data().batch(data::Split::kTrain, indices);
  const StepOptions step{.objective = &task.objective(),
                         .micro_batch = 0,
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
      !task_kind(recipe).is_causal,
      "cost: expected a classifier; got a language model, whose causal attention has no formula here yet");
  const AttentionKind& kind = attention_kind(recipe);
  TORCH_CHECK_VALUE(kind.cost, "cost: expected an attention whose operations are counted; got '", kind.name,
                    "', which has no formula here yet");
  TORCH_CHECK_VALUE(options.batch > 0, "cost: expected a batch of at least 1; got ", options.batch);
  Recipe sized = recipe;
  const tasks::TaskPtr task = task_over(recipe, noise_dataset(recipe, options.length));
  sized.model.max_length = task->data().max_length();
  const LayerAttention made = kind.make(sized, sized.model.max_length);
  const bool over_edges = static_cast<bool>(made.edges);

  RecipeCost cost;
  cost.length = task->data().max_length();
  if (options.memory || (over_edges && !options.density)) {
    const Measured measured = measure(sized, options, *task);
    cost.density = cost.memory_density = measured.density;
    if (options.memory) cost.memory_per_example = measured.memory_per_example;
  }
  if (over_edges && options.density) cost.density = *options.density;
  if (made.method) cost.density = cost.memory_density = made.method(0)->density(cost.length);

  const ModelRecipe& model = recipe.model;
  const int64_t towers = task->towers();
  const auto n = static_cast<double>(cost.length), width = static_cast<double>(model.dim);
  cost.attention = kind.cost(recipe, {.n = n,
                                      .d = static_cast<double>(model.head_dim()),
                                      .density = cost.density,
                                      .device = options.device});
  cost.attention_flops = repeated(cost.attention, towers * model.layers * model.heads);
  const double projections = made.shared_qk ? 2 : 3;
  cost.model_flops = cost.attention_flops +
                     repeated(layer_operations(n, width, static_cast<double>(model.hidden), projections),
                              towers * model.layers) +
                     flops(task->head_operations(n, width));
  return cost;
}

}  // namespace edgewise::train
