// Plain text without labels as token ids, for models that learn from text alone.
//
// Without files of their own, validation and test are the last twentieths of the text, cut where a line ends.
// A line's end belongs to it. A tokeniser is learned from the training part alone.
#pragma once

#include <edgewise/data/examples/token_examples.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace edgewise::data {

struct PlainTextOptions {
  std::vector<std::filesystem::path> train;  // read one after another
  std::vector<std::filesystem::path> validation = {},
                                     test = {};  // both, or none: taken from the end of train
  std::shared_ptr<const Tokenizer> tokenizer =
      nullptr;                // null: byte-level BPE learned from the training part
  int64_t vocabulary = 8000;  // of that
  int64_t max_length = 512;   // tokens of a piece that a model reads
  bool any_bytes = false;
  std::function<void(const std::string& doing, int64_t lines)> progress = nullptr;
};

struct ImportedText {
  TextReader reader;
  TokenExamples examples;  // one a split: the whole of it
};

// Text that is not UTF-8, and a line of more than 8 MiB, is an error that names the file and the line.
ImportedText import_plain_text(const PlainTextOptions& options);

}  // namespace edgewise::data
