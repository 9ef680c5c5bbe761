// Environment: asks the CPU, /proc, torch and the CUDA driver.
#include <edgewise/io/environment.h>

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include <ATen/Parallel.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <edgewise/version.h>

#include "io/git_commit.h"

namespace edgewise::io {
namespace {

std::string read_cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const auto start = line.find_first_not_of(" \t", line.find(':') + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return "unknown";
}

std::string detect_cpu_level() {
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return "avx512bf16";
  if (avx512) return "avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
  return "scalar";
}

// Asks the driver, which is there whenever CUDA works: torch's CPU library cannot name devices, and this file
// must not need the CUDA toolkit to be built.
std::vector<std::string> list_cuda_devices(int64_t count) {
  std::vector<std::string> names(static_cast<size_t>(count), "unknown");
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return names;
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto get_device = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
  const auto get_name = reinterpret_cast<int (*)(char*, int, int)>(::dlsym(driver, "cuDeviceGetName"));
  if (init != nullptr && get_device != nullptr && get_name != nullptr && init(0) == 0) {
    for (int i = 0; i < static_cast<int>(count); ++i) {
      int device = 0;
      char name[256] = "";
      if (get_device(&device, i) == 0 && get_name(name, sizeof(name), device) == 0)
        names[static_cast<size_t>(i)] = name;
    }
  }
  // Not closed: torch uses the same library until the process ends.
  return names;
}

std::string describe_compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#else
  return "unknown";
#endif
}

}  // namespace

Environment describe_environment() {
  Environment environment;
  environment.edgewise_version = version();
  environment.git_commit = io::git_commit();
  environment.torch_version = TORCH_VERSION;
  environment.compiler = describe_compiler();
  environment.cpu_model = read_cpu_model();
  environment.cpu_level = detect_cpu_level();
  environment.threads = at::get_num_threads();
  environment.cuda_available = torch::cuda::is_available();
  if (environment.cuda_available) {
    environment.cuda_devices = list_cuda_devices(static_cast<int64_t>(torch::cuda::device_count()));
  }
  return environment;
}

std::string to_json(const Environment& environment) {
  nlohmann::ordered_json json;
  json["edgewise_version"] = environment.edgewise_version;
  json["git_commit"] = environment.git_commit;
  json["torch_version"] = environment.torch_version;
  json["compiler"] = environment.compiler;
  json["cpu_model"] = environment.cpu_model;
  json["cpu_level"] = environment.cpu_level;
  json["threads"] = environment.threads;
  json["cuda_available"] = environment.cuda_available;
  json["cuda_devices"] = environment.cuda_devices;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int64_t peak_memory_bytes() {
  struct rusage usage {};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{usage.ru_maxrss} * 1024 : 0;  // Linux counts in KiB
}

int64_t current_memory_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total_pages = 0, resident_pages = 0;
  return file >> total_pages >> resident_pages ? resident_pages * ::sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace edgewise::io
