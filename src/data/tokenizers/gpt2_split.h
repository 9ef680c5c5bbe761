// GPT-2's division of text into words, which byte-level BPE never merges across. It is the regular expression
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// by hand. A byte that is not valid UTF-8 counts as a character that is no letter, number or space.
#pragma once

#include <cstddef>
#include <string_view>

namespace edgewise::data {

// Where the word that begins at text[at] ends; at < text.size().
size_t gpt2_word_end(std::string_view text, size_t at);

}  // namespace edgewise::data
