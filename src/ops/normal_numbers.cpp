// By inversion: x = sqrt(2) erfinv(2 u - 1), u the midpoint of one of 2^32 equal intervals.
#include "ops/normal_numbers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/erfinv.h>

#include <cmath>

#include "ops/attention/reference.h"

namespace edgewise::ops {

at::Tensor normal_numbers(const at::Tensor& head_keys, const EdgeShape& shape, at::Device device) {
  const at::Tensor words = reference::pair_words(head_keys, shape, device);
  return at::erfinv((words.to(at::kDouble) + 0.5) * 0x1.0p-31 - 1) * std::sqrt(2.0);
}

}  // namespace edgewise::ops
