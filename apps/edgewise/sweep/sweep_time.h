// How long a training step of a finished run takes, alone on the device.
#pragma once

#include <filesystem>
#include <string>

namespace edgewise::app {

// What `bench train RUN --json` printed, as the run's step.json. Throws when it is no such line.
void write_step_file(const std::filesystem::path& run, const std::string& line);

}  // namespace edgewise::app
