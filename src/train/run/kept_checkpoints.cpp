#include "train/run/kept_checkpoints.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>

#include <edgewise/io/safetensors.h>
#include <torch/types.h>

namespace edgewise::train {
namespace {

constexpr std::string_view kStepPrefix = "step-";

}  // namespace

std::filesystem::path KeptCheckpoints::path(int64_t step) const {
  char name[64];
  std::snprintf(name, sizeof(name), "step-%08lld.safetensors", static_cast<long long>(step));
  return run_ / "checkpoints" / name;
}

std::vector<int64_t> KeptCheckpoints::steps() const {
  std::vector<int64_t> result;
  if (!std::filesystem::is_directory(run_ / "checkpoints")) return result;
  for (const auto& entry : std::filesystem::directory_iterator(run_ / "checkpoints")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kStepPrefix)) continue;
    int64_t step = -1;
    std::from_chars(name.data() + kStepPrefix.size(), name.data() + name.size(), step);
    if (step >= 0 && entry.path() == path(step)) result.push_back(step);
  }
  std::ranges::sort(result);
  return result;
}

bool KeptCheckpoints::wants(const TrainRecipe& train, int64_t step) {
  const int64_t to_come = (train.steps - step + train.eval_every - 1) / train.eval_every;
  return train.average_last > 0 && (train.patience > 0 || to_come < train.average_last);
}

void KeptCheckpoints::forget_after(int64_t step) const {
  for (const int64_t each : steps())
    if (each > step) std::filesystem::remove(path(each));
}

void KeptCheckpoints::add(const torch::nn::Module& model, const CheckpointInfo& info) const {
  save_checkpoint(path(info.step).string(), model, nullptr, info);
  const std::vector<int64_t> kept = steps();
  for (size_t n = 0; n + static_cast<size_t>(count_) < kept.size(); ++n)
    std::filesystem::remove(path(kept[n]));
}

void KeptCheckpoints::save_mean(const std::filesystem::path& file) const {
  const std::vector<int64_t> kept = steps();
  TORCH_CHECK_VALUE(!kept.empty(), "train.average_last: expected checkpoints of validations in ",
                    (run_ / "checkpoints").string(), "; there are none. Train the run again");
  std::map<std::string, at::Tensor> sums;
  io::TensorFile last;
  for (const int64_t step : kept) {
    last = io::load_safetensors(path(step).string());
    for (const auto& [name, tensor] : last.tensors) {
      if (!tensor.is_floating_point()) continue;
      at::Tensor& sum = sums[name];
      TORCH_CHECK_VALUE(!sum.defined() || sum.sizes() == tensor.sizes(), path(step).string(), ": expected ",
                        name, " ", sum.sizes(), " as in the other checkpoints; found ", tensor.sizes());
      sum = sum.defined() ? sum + tensor.to(at::kDouble) : tensor.to(at::kDouble);
    }
  }
  for (auto& [name, sum] : sums) {
    at::Tensor& tensor = last.tensors.at(name);
    tensor = (sum / static_cast<double>(kept.size())).to(tensor.scalar_type());
  }
  io::save_safetensors(file.string(), last, /*checksums=*/true);
}

}  // namespace edgewise::train
