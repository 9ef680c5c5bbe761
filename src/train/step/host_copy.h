// A small tensor on its way from the device to the host. Waiting for it waits for what it depends on, not for
// what was queued later: so a step's numbers can be read while the device is at the next one.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

namespace edgewise::train {

class HostCopy {
 public:
  explicit HostCopy(const at::Tensor& tensor);
  const at::Tensor& get() const;  // waits, if it must

 private:
  at::Tensor host_;
  std::optional<c10::Event> arrived_;  // for tensors of a device
};

}  // namespace edgewise::train
