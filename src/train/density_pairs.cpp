#include "train/density_pairs.h"

#include <torch/types.h>

namespace edgewise::train {

std::vector<double> density_pairs(const Batch& batch, bool count_padding) {
  std::vector<double> result;
  for (const Tower& tower : batch.towers) {
    const double length = static_cast<double>(tower.length());
    result.push_back(!count_padding && tower.mask.defined()
                         ? tower.mask.sum(1).to(at::kDouble).square().sum().item<double>()
                         : static_cast<double>(batch.size()) * length * length);
  }
  return result;
}

}  // namespace edgewise::train
