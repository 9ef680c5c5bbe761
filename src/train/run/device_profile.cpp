#include <edgewise/train/device_profile.h>

#include <algorithm>
#include <exception>
#include <map>

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/profiler_kineto.h>

namespace edgewise::train {
namespace {

using torch::profiler::impl::ActivityType;

// void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, ...>(int, ...)
// -> vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, ...>, cut where a table would burst.
std::string short_name(std::string name) {
  constexpr size_t kLongest = 90;
  if (name.starts_with("void ")) name.erase(0, 5);
  for (const char* scope :
       {"at::native::", "(anonymous namespace)::", "edgewise::", "cuda::", "c10::", "at::"})
    for (size_t at = name.find(scope); at != std::string::npos; at = name.find(scope, at))
      name.erase(at, std::string(scope).size());
  if (name.size() > kLongest) name.replace(kLongest - 3, std::string::npos, "...");
  return name;
}

}  // namespace

DeviceProfile::DeviceProfile() {
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set<ActivityType> activities{ActivityType::CUDA};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  listening_ = true;
}

DeviceProfile::~DeviceProfile() {
  if (!listening_) return;
  try {
    torch::autograd::profiler::disableProfiler();
  } catch (const std::exception& error) {  // another error is on its way out: it is the one to show
    TORCH_WARN("DeviceProfile: could not stop: ", error.what());
  }
}

std::vector<ProfileLine> DeviceProfile::stop() {
  TORCH_CHECK(listening_, "DeviceProfile::stop: expected one call; it has stopped before");
  listening_ = false;
  const auto result = torch::autograd::profiler::disableProfiler();
  std::map<std::string, ProfileLine> lines;
  for (const auto& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    ProfileLine& line = lines[short_name(event.name())];
    ++line.calls;
    line.seconds += static_cast<double>(event.durationNs()) * 1e-9;
  }
  std::vector<ProfileLine> sorted;
  for (auto& [name, line] : lines) {
    line.name = name;
    sorted.push_back(line);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const ProfileLine& a, const ProfileLine& b) { return a.seconds > b.seconds; });
  return sorted;
}

}  // namespace edgewise::train
