// TokenExamples: texts as token ids, in splits, with an answer each or without any; and the folder that holds
// a whole data set: examples.safetensors beside the folder `reader` (text_reader.h).
//
//   SPLIT.tokens   i32 [tokens]    all examples, one after another
//   SPLIT.lengths  i32 [examples]
//   SPLIT.answers  i32 [examples]  numbers of classes, or f32 [examples]; none where nothing is answered
//   SPLIT.lines    i32 [examples]  where each stood in its file, from 1
// SPLIT is train, validation or test. Metadata: format, source, SPLIT.bytes (of the text) and SPLIT.crc32 (of
// its tokens, zlib's), which is checked when reading.
#pragma once

#include <edgewise/data/dataset.h>
#include <edgewise/data/examples/text_reader.h>

#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace edgewise::data {

struct TokenExamples {
  struct Part {
    std::vector<int32_t> tokens;
    std::vector<int32_t> lengths;
    std::vector<double> answers;  // empty where nothing is answered
    std::vector<int32_t> lines;
    int64_t bytes = 0;

    int64_t size() const { return static_cast<int64_t>(lengths.size()); }
    void add(std::span<const int32_t> ids, int64_t line);
  };
  const Part& part(Split split) const { return parts[static_cast<size_t>(split)]; }
  Part& part(Split split) { return parts[static_cast<size_t>(split)]; }

  std::string source;  // what it was made from, for people
  std::array<Part, 3> parts;
};

std::filesystem::path token_examples_path(const std::filesystem::path& folder);
std::filesystem::path text_reader_path(const std::filesystem::path& folder);

// Writes the whole folder, which is made when missing; examples.safetensors appears last, when complete.
void save_token_examples(const std::filesystem::path& folder, const TokenExamples& examples,
                         const TextReader& reader);
// Checks everything it reads; errors name the file, what was expected and what was found.
TokenExamples load_token_examples(const std::filesystem::path& folder, const TextReader& reader);

}  // namespace edgewise::data
