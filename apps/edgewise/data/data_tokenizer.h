// The commands that make tokenisers and show what they do.
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace edgewise::app {

void add_data_tokenizer(CLI::App& data, Action& action);

}  // namespace edgewise::app
