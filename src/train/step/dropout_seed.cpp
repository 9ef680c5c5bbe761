#include "train/step/dropout_seed.h"

#include <torch/utils.h>

#include "kernels/philox.h"

namespace edgewise::train {

void seed_dropout(const RandomStream& random) {
  constexpr uint32_t kNoLayer = 0xFFFFFFFF;  // attention's own dropout has the layers' numbers
  torch::manual_seed(kernels::stream_key(random.seed, random.step, kNoLayer, random.first_item, 0,
                                         kernels::Purpose::kDropout));
}

}  // namespace edgewise::train
