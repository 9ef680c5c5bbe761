#include <edgewise/ops/cpu_level.h>

#include <c10/util/Exception.h>

#include <cstdlib>

#include "kernels/cpu/levels.h"
#include "ops/cpu_level_variable.h"

namespace edgewise {
namespace {

void choose(const std::string& name, const char* who) {
  const auto level = kernels::cpu::level_from_name(name);
  std::string available;
  for (const std::string& each : available_cpu_levels()) available += (available.empty() ? "" : ", ") + each;
  TORCH_CHECK_VALUE(level, who, ": expected a CPU level out of ", available, "; got '", name, "'");
  TORCH_CHECK_VALUE(kernels::cpu::is_available(*level), who, ": this CPU lacks the level '", name,
                    "'; it has ", available);
  kernels::cpu::set_active_level(*level);
}

}  // namespace

std::vector<std::string> available_cpu_levels() {
  std::vector<std::string> names;
  for (const auto level : kernels::cpu::kLevels)
    if (kernels::cpu::is_available(level)) names.emplace_back(kernels::cpu::level_name(level));
  return names;
}

std::string cpu_level() {
  ops::read_cpu_level_variable();
  return kernels::cpu::level_name(kernels::cpu::active_level());
}

void set_cpu_level(const std::string& name) {
  ops::read_cpu_level_variable();  // so that it cannot override this choice later
  choose(name, "set_cpu_level");
}

namespace ops {

void read_cpu_level_variable() {
  static const bool read = [] {
    if (const char* name = std::getenv("EDGEWISE_CPU_LEVEL"); name && *name)
      choose(name, "EDGEWISE_CPU_LEVEL");
    return true;
  }();
  static_cast<void>(read);
}

}  // namespace ops
}  // namespace edgewise
