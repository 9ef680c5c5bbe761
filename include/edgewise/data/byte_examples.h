// ByteExamples: labelled sequences of bytes (grey images, texts) or pairs of them, in splits, and the one
// file that holds a whole data set.
//
// The file is safetensors, readable from Python:
//   bytes           u8 [total]        all sequences, one after another; or
//   bytes.xz        u8 [compressed]   the same as one xz stream
//   lengths         i32 [sequences]
//   train.sequences i32 [n, towers]   which sequences an example consists of
//   train.labels    u8 [n]            and validation.*, test.*
// Metadata: format, task, source, size (of bytes) and crc32 (of bytes, zlib's), which is checked when
// reading.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <edgewise/data/dataset.h>

namespace edgewise::data {

class ByteExamples {
 public:
  explicit ByteExamples(std::string task_name = "", int64_t towers_per_example = 1)
      : task(std::move(task_name)), towers(towers_per_example) {}

  struct Part {
    std::vector<int32_t> sequences;  // [n * towers]
    std::vector<uint8_t> labels;     // [n]
  };

  int64_t sequences() const { return static_cast<int64_t>(ends.size()); }
  int64_t size(Split split) const { return static_cast<int64_t>(part(split).labels.size()); }
  std::span<const uint8_t> sequence(int64_t index) const;
  const Part& part(Split split) const { return parts[static_cast<size_t>(split)]; }
  Part& part(Split split) { return parts[static_cast<size_t>(split)]; }

  int32_t add_sequence(std::span<const uint8_t> content);  // its index
  void add_example(Split split, std::span<const int32_t> of_sequences, int64_t label);
  void add_example(Split split, std::span<const uint8_t> content, int64_t label);  // one tower

  std::string task;    // "image"
  std::string source;  // what it was made from, for people
  int64_t towers = 1;  // sequences per example
  std::vector<uint8_t> bytes;
  std::vector<int64_t> ends;  // where each sequence ends in bytes
  std::array<Part, 3> parts;  // by Split
};

std::filesystem::path byte_examples_path(const std::filesystem::path& folder, const std::string& task);

struct ByteExamplesSaveOptions {
  bool compress = false;  // xz: smaller, but seconds to load instead of a fraction of one
};
// Writes folder/TASK.safetensors, which appears only when complete; the folder is made when missing.
void save_byte_examples(const std::filesystem::path& folder, const ByteExamples& examples,
                        const ByteExamplesSaveOptions& options = {});
// zlib's CRC-32 of the bytes, as the file states it.
std::string byte_examples_checksum(const ByteExamples& examples);
// Checks everything it reads; errors name the file, what was expected and what was found.
ByteExamples load_byte_examples(const std::filesystem::path& folder, const std::string& task);

}  // namespace edgewise::data
