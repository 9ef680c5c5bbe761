#include "train/run/memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <edgewise/io/environment.h>

namespace edgewise::train {

double peak_memory_mb(c10::Device device) {
  constexpr double kMegabyte = 1024.0 * 1024.0;
  if (device.is_cpu()) return static_cast<double>(io::peak_memory_bytes()) / kMegabyte;
  const auto index = device.has_index() ? device.index() : c10::DeviceIndex{0};
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(index);
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<double>(stats.allocated_bytes[kAll].peak) / kMegabyte;
}

}  // namespace edgewise::train
