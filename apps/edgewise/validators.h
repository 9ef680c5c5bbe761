// What the options of a command may be, checked before they are converted, with a sentence for what they may
// not.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace edgewise::app {

CLI::Validator whole_number(int64_t least);       // "expected a whole number of at least 1; got '-3'"
CLI::Validator number_of_at_least(double least);  // these two: finite
CLI::Validator number_above(double bound);
CLI::Validator number_between(double least, double most);  // both allowed
CLI::Validator one_of(
    std::vector<std::string> names);  // "expected best or last; got 'lats'; did you mean last?"

}  // namespace edgewise::app
