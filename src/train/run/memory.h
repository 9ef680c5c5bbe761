// The largest memory use so far: of the process on the CPU, of torch's allocator on a GPU.
#pragma once

#include <c10/core/Device.h>

namespace edgewise::train {

double peak_memory_mb(c10::Device device);

}  // namespace edgewise::train
