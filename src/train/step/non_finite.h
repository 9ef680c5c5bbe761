// Where the first NaN or infinity of a failed step came from.
#pragma once

#include <edgewise/models/model.h>

#include <span>
#include <string>

namespace edgewise::train {

// "parameter encoder.norm.weight (1 of 64 values)": looks at the parameters, then repeats the given forward
// passes, with the same edges and the same dropout, and looks at every state in order, then at the gradients;
// the first that is not finite is named. Empty when all are finite.
std::string find_non_finite(Model& model, std::span<const ModelInput> passes);

}  // namespace edgewise::train
