// What the commands share that make data sets of texts.
#pragma once

#include <edgewise/data/examples/import_table.h>

#include <CLI/CLI.hpp>

#include <memory>
#include <string>

namespace edgewise::app {

// --tokenizer, --vocabulary and --max-length.
void add_tokenizer_options(CLI::App& command, std::string& tokenizer, data::TableImportOptions& options);
// That of a folder, "bytes", or null for "".
std::shared_ptr<const data::Tokenizer> tokenizer_named(const std::string& name);

// Makes the data set, reads it back and prints its splits.
void save_and_describe_table(data::TableImportOptions options, const std::string& folder);

}  // namespace edgewise::app
