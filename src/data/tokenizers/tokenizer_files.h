// The files of tokenisers: what load_tokenizer and the constructors read.
#pragma once

#include <edgewise/data/byte_level_bpe.h>
#include <edgewise/data/subword_bpe.h>

#include <filesystem>
#include <optional>
#include <string>

namespace edgewise::data {

// A text file, plain or .xz (also when only FILE.xz is there), that `what` names in the error when there is
// none.
struct TextFile {
  std::string name;  // as found
  std::string text;
};
TextFile read_text_file(const std::filesystem::path& path, const char* what);

// The special ids from `special` where given, else from files.special or by their usual names.
ByteLevelBpe read_byte_level_bpe(const ByteLevelBpeFiles& files, const std::optional<SpecialIds>& special);
SubwordBpe read_subword_bpe(const SubwordBpeFiles& files);

}  // namespace edgewise::data
