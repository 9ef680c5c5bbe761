// Where the time of a GPU goes: every kernel and copy that ran on it, as the driver reports them to torch.
// Operations of the host (profile.h) only say how long it took to ask for them.
#pragma once

#include <vector>

#include <edgewise/train/profile.h>

namespace edgewise::train {

// Listens from its construction until stop(). One at a time. Keeps every event, so for runs of some hundred
// steps.
class DeviceProfile {
 public:
  DeviceProfile();
  ~DeviceProfile();
  DeviceProfile(const DeviceProfile&) = delete;
  DeviceProfile& operator=(const DeviceProfile&) = delete;

  // Kernels and copies by name, longest first. Kernels of several streams may overlap. Call it once.
  std::vector<ProfileLine> stop();

 private:
  bool listening_ = false;
};

}  // namespace edgewise::train
