// Folders that a command is given, checked before anything is read from them.
#pragma once

#include <filesystem>
#include <string>

namespace edgewise::app {

// Throws unless there is such a folder with this file of a run in it; `command` begins the message.
void expect_run_folder(const std::filesystem::path& folder, const std::string& file,
                       const std::string& command);

// For people: from the folder where the program was called, if the place is below it.
std::string shown_place(const std::string& place);

}  // namespace edgewise::app
