// edgewise doctor --distributed: whether several processes can train together.
#pragma once

#include <string>

namespace edgewise::app {

// Under torchrun: meets the other ranks, compares what they are, adds up numbers and measures how fast; the
// first rank prints a table. Without: says what there is to start with. 1 when something is wrong.
int check_distributed(const std::string& device);

}  // namespace edgewise::app
