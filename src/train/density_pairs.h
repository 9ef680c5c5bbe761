// What densities of batches are divided by.
#pragma once

#include <edgewise/models/batch.h>

#include <vector>

namespace edgewise::train {

// Per tower: pairs of valid tokens, or of all. The density of several batches together is the mean of theirs
// with these weights.
std::vector<double> density_pairs(const Batch& batch, bool count_padding);

}  // namespace edgewise::train
