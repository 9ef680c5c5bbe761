// Random tokens in place of a task's data: enough to measure what a model costs.
#include <c10/util/Exception.h>
#include <edgewise/train/model_cost.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <string_view>

namespace edgewise::train {
namespace {

struct TaskSize {
  std::string_view name;
  int64_t length, vocabulary, classes, towers;
};
constexpr TaskSize kTasks[] = {{"listops", 2048, 32, 10, 1},
                               {"text", 3072, 512, 2, 1},
                               {"retrieval", 4096, 512, 2, 2},
                               {"image", 1024, 512, 10, 1},
                               {"pathfinder", 1024, 512, 2, 1}};

class NoiseDataset : public data::Dataset {
 public:
  NoiseDataset(const TaskSize& task, bool labels_tokens) : task_(task), labels_tokens_(labels_tokens) {}

  std::string name() const override { return std::string(task_.name) + " (random tokens)"; }
  int64_t size(data::Split) const override { return 64; }
  int64_t vocabulary() const override { return task_.vocabulary; }
  int64_t classes() const override { return task_.classes; }
  int64_t max_length() const override { return task_.length; }
  bool labels_tokens() const override { return labels_tokens_; }

  data::Batch batch(data::Split, std::span<const int64_t> indices) const override {
    const auto items = static_cast<int64_t>(indices.size());
    // The first index names the numbers: the same indices give the same batch.
    at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(indices[0]));
    data::Batch result;
    for (int64_t tower = 0; tower < task_.towers; ++tower) {
      result.tokens.push_back(at::randint(1, task_.vocabulary, {items, task_.length}, generator, at::kLong));
      result.masks.push_back(at::ones({items, task_.length}, at::kBool));
    }
    std::vector<int64_t> labels = {items};
    if (labels_tokens_) labels.push_back(task_.length);
    result.labels = at::randint(0, task_.classes, labels, generator, at::kLong);
    return result;
  }

 private:
  TaskSize task_;
  bool labels_tokens_;
};

}  // namespace

std::shared_ptr<const data::Dataset> noise_dataset(const Recipe& recipe, int64_t length) {
  const bool repeated = recipe.data.name == "repeated_tokens";
  std::optional<TaskSize> size;
  if (repeated) size = TaskSize{"repeated_tokens", recipe.data.length, recipe.data.length + 1, 2, 1};
  for (const TaskSize& task : kTasks)
    if (task.name == recipe.data.name) size = task;
  TORCH_CHECK_VALUE(size, "random tokens can stand for listops, text, retrieval, image, pathfinder and ",
                    "repeated_tokens, not for every task; got '", recipe.data.name, "'");
  if (recipe.model.max_length > 0) size->length = recipe.model.max_length;
  if (length > 0) size->length = length;
  return std::make_shared<NoiseDataset>(*size, repeated);
}

}  // namespace edgewise::train
