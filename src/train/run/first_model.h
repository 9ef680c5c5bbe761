// The model that a run begins with.
#pragma once

#include <edgewise/tasks/task.h>
#include <edgewise/train/recipe.h>

#include <string>

namespace edgewise::train {

// A model at its start, with the weights that the recipe asks for (train.weights) unless the run has weights
// of its own already. `told` says which they were; it stays empty without.
ModelPtr first_model(const Recipe& recipe, const tasks::Task& task, bool has_weights, std::string& told);

}  // namespace edgewise::train
