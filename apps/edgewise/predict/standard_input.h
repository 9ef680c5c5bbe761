// Lines of standard input, for commands that answer each of them.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace edgewise::app {

// Calls take(line) for every line with its end, and idle() when no more is waiting, so that whoever writes
// line by line gets answers line by line. `command` begins messages.
void each_line_of_input(const std::string& command, const std::function<void(std::string_view)>& take,
                        const std::function<void()>& idle);

}  // namespace edgewise::app
