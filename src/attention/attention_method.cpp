#include <edgewise/attention/attention_method.h>

#include "ops/enum_names.h"

namespace edgewise {
namespace {

constexpr EnumNames<MethodMode, 2> kModes{
    "mode", {{{"paper", MethodMode::kPaper}, {"harness", MethodMode::kHarness}}}};

}  // namespace

MethodMode parse_method_mode(std::string_view name) {
  return kModes.parse(name);
}
std::string_view to_string(MethodMode mode) {
  return kModes.name(mode);
}

}  // namespace edgewise
