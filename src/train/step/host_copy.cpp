#include "train/step/host_copy.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace edgewise::train {

HostCopy::HostCopy(const at::Tensor& tensor) {
  if (tensor.is_cpu()) {
    host_ = tensor;
    return;
  }
  host_ = tensor.to(at::kCPU, /*non_blocking=*/true);  // into pinned memory
  arrived_.emplace(tensor.device().type());
  arrived_->record(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
}

const at::Tensor& HostCopy::get() const {
  if (arrived_) arrived_->synchronize();
  return host_;
}

}  // namespace edgewise::train
