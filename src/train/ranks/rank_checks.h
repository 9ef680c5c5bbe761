// What several processes cannot train together, and what they must have alike: refused before anything is
// made.
#pragma once

#include <edgewise/tasks/task.h>
#include <edgewise/train/ranks.h>
#include <edgewise/train/recipe.h>

namespace edgewise::train {

// Nothing where `ranks` is null.
void check_ranks(const Recipe& recipe, const tasks::Task& task, Ranks* ranks);

}  // namespace edgewise::train
