#include "ops/streams.h"

#include <ATen/ops/empty.h>

#include <bit>

#include "ops/step_inputs.h"

namespace edgewise::ops {

at::Tensor stream_keys(const RandomStream& random, kernels::Purpose purpose, const EdgeShape& shape) {
  at::Tensor keys = at::empty({shape.batch * shape.heads}, at::kLong);
  int64_t* data = keys.mutable_data_ptr<int64_t>();
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t h = 0; h < shape.heads; ++h)
      data[b * shape.heads + h] = std::bit_cast<int64_t>(kernels::stream_key(
          random.seed, random.step, random.layer, random.first_item + b / random.item_rows, h, purpose));
  return keys;
}

at::Tensor stream_keys_on(at::Device device, const RandomStream& random, kernels::Purpose purpose,
                          const EdgeShape& shape) {
  return on_device(device,
                   [=](const StreamShift& shift) { return stream_keys(shift(random), purpose, shape); });
}

}  // namespace edgewise::ops
