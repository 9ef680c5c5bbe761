// What a recipe says of snapshots.
#pragma once

#include <edgewise/data/dataset.h>
#include <edgewise/train/recipe.h>

#include <cstdint>
#include <string>
#include <vector>

namespace edgewise::train {

// "0,1,5": numbers of examples, each once, at most 64. Throws for anything else.
std::vector<int64_t> parse_snapshot_inputs(const std::string& text);

// Which validation examples snapshots show; none without snapshots. Throws when the data lacks one of them,
// or when the attention has no graph.
std::vector<int64_t> examples_of_snapshots(const Recipe& recipe, const data::Dataset& dataset);

}  // namespace edgewise::train
