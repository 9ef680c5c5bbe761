#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "train/ranks/backends.h"

#include <torch/cuda.h>

namespace edgewise::train {

std::string nccl_refusal() {
  return torch::cuda::is_available() ? "" : "torch sees no GPU";
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                            int64_t size, at::Device device) {
  // RankWatch is there first: it knows which rank is missing.
  constexpr std::chrono::hours kTimeout{24};
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = kTimeout;
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(rank),
                                                             static_cast<int>(size), options);
  backend->setBoundDeviceId(device);
  return backend;
}

}  // namespace edgewise::train
