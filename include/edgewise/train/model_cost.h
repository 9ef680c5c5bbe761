// The cost of the model that a recipe describes, per example, without its data: FLOPs by formula, memory by
// running a training step on random tokens.
#pragma once

#include <edgewise/attention/attention_cost.h>
#include <edgewise/data/dataset.h>
#include <edgewise/train/recipe.h>

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace edgewise::train {

// Random full-length sequences with the sizes of the recipe's task; `length` 0 = the length of the recipe.
std::shared_ptr<const data::Dataset> noise_dataset(const Recipe& recipe, int64_t length = 0);

struct CostOptions {
  int64_t length = 0;             // 0 = model.max_length, or the task's
  std::optional<double> density;  // of the edges; absent = measured, on the recipe's untrained model
  c10::Device device = c10::kCPU;
  int64_t batch = 1;   // examples at once when memory is measured
  bool memory = true;  // measure memory; without it, and with a given density, nothing is run
};

struct RecipeCost {
  int64_t length = 0;                        // n
  double density = 1;                        // of the edges; what a method says of itself; 1 for dense
  Operations attention;                      // one head of one layer
  double attention_flops = 0;                // per example: all heads, layers and towers
  double model_flops = 0;                    // and the rest of the model
  std::optional<double> memory_per_example;  // bytes: the peak of a training step beyond what it starts with
  double memory_density = 1;  // of the edges in that step, which are those of an untrained model
};

RecipeCost recipe_cost(const Recipe& recipe, const CostOptions& options = {});

// The same recipe with dense attention: what costs are compared with.
Recipe dense_recipe(const Recipe& recipe);

}  // namespace edgewise::train
