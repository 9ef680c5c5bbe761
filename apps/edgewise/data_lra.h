// What the commands that make byte-valued data sets share.
#pragma once

#include <edgewise/data/byte_examples.h>

#include <CLI/CLI.hpp>

#include <string>

#include "command.h"

namespace edgewise::app {

void add_data_lra(CLI::App& data, Action& action);

void add_output_options(CLI::App& command, std::string& out, bool& xz, const std::string& task);
// Makes the folder; throws when the file could not be written there, before the work.
void prepare_examples_folder(const std::string& folder, const std::string& task);
// Writes the file, reads it back and prints its splits, size and checksum.
void save_and_describe(const data::ByteExamples& examples, const std::string& folder, bool xz);

}  // namespace edgewise::app
