// The commands that make byte-valued data sets, and what they share with the others.
#pragma once

#include <edgewise/data/byte_examples.h>

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>

#include "command.h"

namespace edgewise::app {

void add_data_lra(CLI::App& data, Action& action);

// Throws when the file is there already and nobody said that it may go.
void check_overwrites(const std::string& task, const std::filesystem::path& file, bool overwrite);
inline constexpr const char* kOverwriteHelp = "replace a data set that is there already";

}  // namespace edgewise::app
