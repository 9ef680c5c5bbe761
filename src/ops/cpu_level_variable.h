// The environment variable EDGEWISE_CPU_LEVEL.
#pragma once

namespace edgewise::ops {

// Applies the variable on the first call. Throws c10::ValueError when it names no level, or one that this CPU
// lacks; a later call then tries again.
void read_cpu_level_variable();

}  // namespace edgewise::ops
