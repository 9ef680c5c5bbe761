// edgewise data translation: sentences with their translations become token ids.
#pragma once

#include "command.h"

namespace edgewise::app {

void add_data_translation(CLI::App& data, Action& action);

}  // namespace edgewise::app
