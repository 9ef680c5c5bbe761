// How the tests of probes in squares draw them: among all pairs, or causal and among valid tokens.
#pragma once

#include <edgewise/graph/edge_set.h>
#include <edgewise/ops/sample.h>

#include "kit/random_inputs.h"

namespace edgewise::kit {

inline SampleOptions probe_options(const EdgeShape& shape, bool restricted) {
  SampleOptions options;
  options.probe_unit = 16;
  options.random = {.seed = 5, .step = 7, .layer = 1};
  if (restricted) {
    options.is_causal = true;
    options.key_mask = rand({shape.batch, shape.keys}, 3) < 0.8;
    options.query_mask = rand({shape.batch, shape.queries}, 4) < 0.8;
  }
  return options;
}

}  // namespace edgewise::kit
