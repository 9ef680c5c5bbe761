// torch.autocast on CUDA in bf16, for as long as it lives.
#pragma once

#include <ATen/autocast_mode.h>

namespace edgewise::kit {

struct CudaAutocast {
  CudaAutocast() {
    at::autocast::set_autocast_enabled(at::kCUDA, true);
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
  }
  ~CudaAutocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCUDA, false);
  }
};

}  // namespace edgewise::kit
