// What the fields of a recipe must satisfy together.
#pragma once

#include <edgewise/train/recipe.h>

namespace edgewise::train {

// Fills in what follows from other fields; throws where they do not fit. `name` stands for the recipe.
void resolve_recipe(Recipe& recipe, const std::string& name);

}  // namespace edgewise::train
