// edgewise data tsv | jsonl: a table of one's own becomes a data set.
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace edgewise::app {

void add_data_table(CLI::App& data, Action& action);

}  // namespace edgewise::app
