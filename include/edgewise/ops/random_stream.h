// RandomStream: which random numbers a call uses. Counter-based (Philox), so the same stream gives the same
// edges for any thread count and whatever else is in the batch.
#pragma once

#include <cstdint>

namespace edgewise {

struct RandomStream {
  uint64_t seed = 0;
  uint64_t step = 0;       // training step; evaluation uses a step of its own
  uint32_t layer = 0;      // layer, or any number that separates two uses within a step
  int64_t first_item = 0;  // position of item 0 of this batch in the global batch
  int64_t item_rows = 1;   // neighbouring rows of the batch that are one item, such as hypotheses of a beam
};

}  // namespace edgewise
