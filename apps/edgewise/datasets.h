// The dataset a recipe names, and what an accuracy on it is worth.
#pragma once

#include <edgewise/data/dataset.h>
#include <edgewise/train/recipe.h>

#include <memory>
#include <string>
#include <vector>

namespace edgewise::app {

std::shared_ptr<const data::Dataset> open_dataset(const train::Recipe& recipe);

// Accuracies that need no attention at all, by name; printed beside every figure.
struct Baseline {
  std::string name;
  double accuracy;
};
std::vector<Baseline> baselines(const data::Dataset& dataset, data::Split split);

}  // namespace edgewise::app
