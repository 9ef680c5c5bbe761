// New inputs as people give them to `edgewise explore`: texts, files, pictures, token ids.
#pragma once

#include <edgewise/train/new_inputs.h>

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace edgewise::app {

struct GivenInputs {
  std::vector<std::string> texts, pairs, files, pictures, token_files;

  bool empty() const { return texts.empty() && files.empty() && pictures.empty() && token_files.empty(); }
};

void add_given_inputs(CLI::App& command, GivenInputs& given);

// Reads the files. Throws for a pair without a text, for a file that cannot be read, and for what is no list
// of token ids.
std::vector<train::NewInput> read_given_inputs(const GivenInputs& given);

}  // namespace edgewise::app
