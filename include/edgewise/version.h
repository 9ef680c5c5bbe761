#pragma once

namespace edgewise {
const char* version();  // "0.1.0"
}
