// What a command threw, in words for its user: what torch and the standard library say about memory and
// devices is meant for who wrote the call.
#pragma once

#include <string>

namespace edgewise::app {

struct Explained {
  std::string message;  // one line
  int status = 1;       // of the process; 2: wrong usage
};

// `command` is the first word of the command line ("bench"), which decides what could be lowered.
Explained explain_error(std::string message, const std::string& command);

}  // namespace edgewise::app
