// A measurement in a process of its own, so that its peak of memory is its own.
#pragma once

#include <string>

namespace edgewise::app {

// Runs this program with `arguments` and returns the last line that it prints. Throws when it fails, with
// what it said; `what` ("bench scaling: the measurement of n = 64") begins the message.
std::string last_line_of_child(const std::string& arguments, const std::string& what);

}  // namespace edgewise::app
