// Texts and their translations, a sentence a line in two files, to token examples.
#pragma once

#include <edgewise/data/examples/translation_pairs.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace edgewise::data {

struct ParallelFiles {
  std::string name;  // of a test set
  std::filesystem::path source, target;
};

struct TranslationImportOptions {
  ParallelFiles train, validation;
  std::vector<ParallelFiles> tests;  // at least one
  std::string source_language = "source", target_language = "target";
  // Words stand between blanks in the files, perhaps divided by "@@ " already: the pieces are learned as
  // subword-nmt does, of both languages together, by so many merges. 0: any text, in pieces of `tokenizer`.
  int64_t subword_merges = 0;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: byte-level BPE learned from both training texts
  int64_t vocabulary = 8000;                   // of that
  int64_t max_length = 256;                    // tokens of a sentence with its mark
  bool any_bytes = false;
  bool skip_empty = false;  // training pairs with an empty side are left out, instead of an error
  std::function<void(const std::string& doing, int64_t lines)> progress = nullptr;
};

struct ImportedTranslation {
  TextReader reader;
  TokenExamples examples;
  TranslationSets sets;
  int64_t empty = 0;     // training pairs left out
  int64_t too_long = 0;  // training pairs left out
  int64_t cut = 0;       // sentences of validation and test that are read up to max_length
};

// Whether a tokeniser divides words between blanks, whose pieces may come with "@@" at their ends.
bool reads_words(const Tokenizer& tokenizer);
// Words with single blanks in between, pieces put together again: how texts for such a tokeniser are read.
std::string as_words(std::string_view line);

// Files of different numbers of lines, an empty line, text that is not UTF-8 and a line of more than 8 MiB
// are errors that name the file and the line.
ImportedTranslation import_translation(const TranslationImportOptions& options);

}  // namespace edgewise::data
