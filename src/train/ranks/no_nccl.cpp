// In place of nccl_backend.cpp in a build without CUDA.
#include "train/ranks/backends.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace edgewise::train {

std::string nccl_refusal() {
  return "this edgewise was built without CUDA; build it where nvcc is found";
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, int64_t, int64_t,
                                            at::Device) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "ranks: expected NCCL; ", nccl_refusal());
}

}  // namespace edgewise::train
