// Bytes as text, for pictures and data inside of HTML.
#pragma once

#include <string>

namespace edgewise::app {

std::string base64(const std::string& bytes);

}  // namespace edgewise::app
