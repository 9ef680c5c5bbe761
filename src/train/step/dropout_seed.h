// The random numbers of ordinary dropout, which come from torch's generator.
#pragma once

#include <edgewise/ops/random_stream.h>

namespace edgewise::train {

// Starts torch's generator afresh for one forward pass of training, from the stream of that pass. So a
// resumed run draws what the whole run would have drawn, and a pass that failed can be run again as it was.
void seed_dropout(const RandomStream& random);

}  // namespace edgewise::train
