// Runs a piece of a test with another way of forming float32 products on CUDA.
#pragma once

#include <edgewise/ops/float32_matmul.h>

namespace edgewise::kit {

class ForcedFloat32Matmul {
 public:
  explicit ForcedFloat32Matmul(Float32Matmul matmul) { set_float32_matmul(matmul); }
  ~ForcedFloat32Matmul() { set_float32_matmul(std::nullopt); }
  ForcedFloat32Matmul(const ForcedFloat32Matmul&) = delete;
  ForcedFloat32Matmul& operator=(const ForcedFloat32Matmul&) = delete;
};

}  // namespace edgewise::kit
