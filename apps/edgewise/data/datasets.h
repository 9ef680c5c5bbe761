// The dataset a recipe names, and what an accuracy on it is worth.
#pragma once

#include <edgewise/data/dataset.h>
#include <edgewise/train/recipe.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace edgewise::app {

std::shared_ptr<const data::Dataset> open_dataset(const train::Recipe& recipe);

// Name and sizes of the data that a run was trained on, as it noted them; empty for runs that did not yet.
std::string noted_data(const std::filesystem::path& run);

// What tells a data set from the one that the run noted; empty when it is the same, or none was noted.
std::string other_data(const std::filesystem::path& run, const data::Dataset& dataset);

// The data that a run was trained on, if it is what lies where its recipe says; a relative path may lead
// elsewhere today. Else nothing, and the reason: in `why_not`, empty when there simply is no data.
// `noted` is what the run noted of it.
std::shared_ptr<const data::Dataset> data_of_run(const std::string& noted, const std::string& run,
                                                 const train::Recipe& recipe, std::string& why_not);

// Accuracies that need no attention at all, by name; printed beside every figure.
struct Baseline {
  std::string name;
  double accuracy;
};
std::vector<Baseline> baselines(const data::Dataset& dataset, data::Split split);

}  // namespace edgewise::app
