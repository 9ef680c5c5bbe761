// The instruction set that the CPU kernels of attention and its gradients run on.
//
// Chosen once by asking the CPU; the environment variable EDGEWISE_CPU_LEVEL or set_cpu_level() choose
// another, to compare levels or to test the ones below the best. Results agree within rounding. fp64 always
// runs on "scalar".
#pragma once

#include <string>
#include <vector>

namespace edgewise {

// The level in use: "scalar", "avx2", "avx512" or "avx512bf16".
std::string cpu_level();
// Throws c10::ValueError for an unknown name or a level that this CPU lacks.
void set_cpu_level(const std::string& name);
std::vector<std::string> available_cpu_levels();  // slowest first

}  // namespace edgewise
