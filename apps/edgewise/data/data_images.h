// edgewise data images.
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace edgewise::app {

void add_data_images(CLI::App& data, Action& action);

}  // namespace edgewise::app
