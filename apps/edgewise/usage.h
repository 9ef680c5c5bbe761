// Wrong usage of the command line, explained in one line: which command, what was not understood, what is
// near it.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace edgewise::app {

// "edgewise: unknown command 'trian'; did you mean train?"
std::string explain_usage(const CLI::App& app, const CLI::Error& error);

// "a, b or c"
std::string joined(const std::vector<std::string>& names, const std::string& last);

// "; did you mean train?", or nothing when no name is near.
std::string did_you_mean(const std::string& wanted, const std::vector<std::string>& names);

}  // namespace edgewise::app
