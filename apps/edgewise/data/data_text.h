// edgewise data text FILE...: a text of one's own becomes token ids. (With --from it reads reviews of the
// Long Range Arena: data_lra.cpp.)
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "data/data_examples.h"

namespace edgewise::app {

struct PlainTextArguments {
  std::vector<std::string> files;
  std::string validation, test, tokenizer;
  data::TableImportOptions options;  // vocabulary, length and bytes
};

void add_plain_text_options(CLI::App& text, PlainTextArguments& arguments);
int import_plain_text(const PlainTextArguments& arguments, const std::string& out, bool overwrite);

}  // namespace edgewise::app
