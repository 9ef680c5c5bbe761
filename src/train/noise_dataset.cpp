// Random tokens in place of a task's data: enough to measure what a model costs.
#include <c10/util/Exception.h>
#include <edgewise/train/model_cost.h>
#include <edgewise/train/task_kinds.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace edgewise::train {
namespace {

class NoiseDataset : public data::Dataset {
 public:
  NoiseDataset(std::string task, const NoiseSize& size) : task_(std::move(task)), size_(size) {}

  std::string name() const override { return task_ + " (random tokens)"; }
  int64_t size(data::Split) const override { return 64; }
  int64_t vocabulary() const override { return size_.vocabulary; }
  int64_t classes() const override { return size_.classes; }
  int64_t max_length() const override { return size_.length; }

  Batch batch(data::Split, std::span<const int64_t> indices) const override {
    const auto items = static_cast<int64_t>(indices.size());
    // The first index names the numbers: the same indices give the same batch.
    at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(indices[0]));
    Batch result;
    for (int64_t tower = 0; tower < size_.towers; ++tower)
      result.towers.push_back(
          {.tokens = at::randint(1, size_.vocabulary, {items, size_.length}, generator, at::kLong),
           .mask = at::ones({items, size_.length}, at::kBool)});
    std::vector<int64_t> labels = {items};
    if (size_.labels_tokens) labels.push_back(size_.length);
    result.labels = at::randint(0, size_.classes, labels, generator, at::kLong);
    return result;
  }

 private:
  std::string task_;
  NoiseSize size_;
};

}  // namespace

DatasetPtr noise_dataset(const Recipe& recipe, int64_t length) {
  const TaskKind& kind = task_kind(recipe);
  std::string known;
  for (const std::string& name : task_names())
    if (task_kind(name).noise) known += (known.empty() ? "" : ", ") + name;
  TORCH_CHECK_VALUE(kind.noise, "random tokens can stand for ", known, ", not for every task; got '",
                    kind.name, "'");
  NoiseSize size = kind.noise(recipe);
  if (recipe.model.max_length > 0) size.length = recipe.model.max_length;
  if (length > 0) size.length = length;
  return std::make_shared<NoiseDataset>(kind.name, size);
}

}  // namespace edgewise::train
