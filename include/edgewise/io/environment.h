// What a run ran on: versions, CPU, GPU, threads. Written beside every result, so that a figure can be
// explained later. Names of people and machines are left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace edgewise::io {

struct Environment {
  std::string edgewise_version;
  std::string git_commit;  // of the build, "-dirty" behind it when files differed; or "unknown"
  std::string torch_version;
  std::string compiler;
  std::string cpu_model;
  std::string cpu_level;  // "scalar" | "avx2" | "avx512" | "avx512bf16": the best the CPU has
  int64_t threads = 1;    // of torch's intra-op pool
  bool cuda_available = false;
  std::vector<std::string> cuda_devices;  // names, in the order of device numbers
};

Environment describe_environment();
std::string to_json(const Environment& environment);  // one object, indented, ends with a newline

int64_t peak_memory_bytes();     // largest resident size of this process so far
int64_t current_memory_bytes();  // resident size now; 0 where /proc is not mounted

}  // namespace edgewise::io
