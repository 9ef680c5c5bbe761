// The version comes from CMakeLists.txt, the one place that states it.
#include <edgewise/version.h>

namespace edgewise {
const char* version() {
  return EDGEWISE_VERSION;
}
}  // namespace edgewise
