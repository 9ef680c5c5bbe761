// The weights at the last validations, a checkpoint each, and their mean (train.average_last).
#pragma once

#include <edgewise/train/checkpoint.h>
#include <edgewise/train/recipe.h>

#include <cstdint>
#include <filesystem>
#include <vector>

namespace edgewise::train {

class KeptCheckpoints {
 public:
  // checkpoints/step-00000100.safetensors and so on in the run folder; at most `count` of them are kept.
  KeptCheckpoints(const std::filesystem::path& run, int64_t count) : run_(run), count_(count) {}

  // Whether the mean may need the weights of the validation at this step: a run that may end early needs all.
  static bool wants(const TrainRecipe& train, int64_t step);
  // Those of later steps, which a run that goes on from `step` makes again, are done with.
  void forget_after(int64_t step) const;
  void add(const torch::nn::Module& model, const CheckpointInfo& info) const;
  // The steps of those that there are, ascending.
  std::vector<int64_t> steps() const;
  // Writes the mean of all of them to `file`, with the description of the last. What is not a floating-point
  // number is the last one's. Throws when there are none.
  void save_mean(const std::filesystem::path& file) const;

  std::filesystem::path path(int64_t step) const;

 private:
  std::filesystem::path run_;
  int64_t count_;
};

}  // namespace edgewise::train
