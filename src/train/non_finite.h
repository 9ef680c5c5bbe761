// Where the first NaN or infinity of a failed step came from.
#pragma once

#include <edgewise/models/classifier.h>

#include <string>

namespace edgewise::train {

// "parameter encoder.norm.weight (1 of 64 values)": looks at the parameters, then runs the model once more
// and looks at every state in order, then at the gradients; the first that is not finite is named. Empty when
// all are finite.
std::string find_non_finite(Classifier& model, const ModelInput& input);

}  // namespace edgewise::train
