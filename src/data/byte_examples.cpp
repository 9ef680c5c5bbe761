#include <edgewise/data/byte_examples.h>

#include <cstring>
#include <numeric>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <edgewise/io/safetensors.h>

#include "data/readers/compressed.h"

namespace edgewise::data {

namespace {

constexpr const char* kFormat = "edgewise.byte_examples.1";
constexpr std::array<Split, 3> kSplits = {Split::kTrain, Split::kValidation, Split::kTest};

std::string split_name(Split split, const char* field) {
  return std::string(to_string(split)) + "." + field;
}

// A tensor over memory that outlives it.
template <typename Element>
at::Tensor view(const std::vector<Element>& values, std::vector<int64_t> shape, at::ScalarType dtype) {
  return at::from_blob(const_cast<Element*>(values.data()), shape, at::TensorOptions().dtype(dtype));
}

// Reads the tensors of one file; knows its name, so that an error can say so.
class Reader {
 public:
  Reader(std::string path, const std::string& task) : path_(std::move(path)), task_(task) {
    file_ = io::load_safetensors(path_);
    expect(meta("format") == kFormat, "metadata format = ", kFormat, "; found '", meta("format"), "'");
    expect(meta("task") == task, "the data of task ", task, "; found '", meta("task"), "'");
  }

  ByteExamples read() {
    ByteExamples examples(task_);
    examples.source = meta("source");
    examples.bytes = read_bytes();
    read_lengths(examples);
    for (const Split split : kSplits) read_part(examples, split);
    return examples;
  }

 private:
  std::vector<uint8_t> read_bytes() {
    std::vector<uint8_t> bytes;
    const uint64_t size = number(meta("size"));
    if (file_.tensors.contains("bytes.xz")) {
      const std::vector<uint8_t> compressed = values<uint8_t>("bytes.xz", 1);
      bytes = xz_decompress(compressed, path_ + ": bytes.xz", std::min(size, xz_limit(compressed.size())));
    } else {
      bytes = values<uint8_t>("bytes", 1);
    }
    expect(bytes.size() == size, size, " bytes as the metadata says; found ", bytes.size());
    const std::string sum = crc32_text(bytes);
    expect(sum == meta("crc32"), "bytes of CRC-32 ", meta("crc32"), "; found ", sum, "; the file is damaged");
    return bytes;
  }

  void read_lengths(ByteExamples& examples) {
    int64_t end = 0;
    for (const int32_t length : values<int32_t>("lengths", 1)) {
      expect(length >= 0, "lengths of at least 0; found ", length);
      examples.ends.push_back(end += length);
    }
    expect(end == static_cast<int64_t>(examples.bytes.size()), "lengths that add up to ",
           examples.bytes.size(), "; found ", end);
  }

  void read_part(ByteExamples& examples, Split split) {
    const std::string name = split_name(split, "sequences");
    ByteExamples::Part& part = examples.part(split);
    part.sequences = values<int32_t>(name, 2);
    part.labels = values<uint8_t>(split_name(split, "labels"), 1);
    const at::Tensor& tensor = file_.tensors.at(name);
    const int64_t towers = tensor.size(1);
    expect(towers == 1 || towers == 2, name, " to be [n, 1] or [n, 2]; found [n, ", towers, "]");
    expect(split == Split::kTrain || towers == examples.towers, name, " to have ", examples.towers,
           " columns, as train; found ", towers);
    examples.towers = towers;
    expect(tensor.size(0) == static_cast<int64_t>(part.labels.size()), "as many labels as rows of ", name,
           "; found ", part.labels.size(), " and ", tensor.size(0));
    for (const int32_t index : part.sequences) {
      expect(index >= 0 && index < examples.sequences(), name, " below ", examples.sequences(), "; found ",
             index);
    }
  }

  template <typename Element>
  std::vector<Element> values(const std::string& name, int64_t dimensions) {
    const auto found = file_.tensors.find(name);
    expect(found != file_.tensors.end(), "a tensor '", name, "'; found none");
    const at::Tensor& tensor = found->second;
    expect(tensor.scalar_type() == c10::CppTypeToScalarType<Element>::value && tensor.dim() == dimensions,
           "tensor '", name, "' to be ", c10::CppTypeToScalarType<Element>::value, " of ", dimensions,
           " dimension(s); found ", tensor.scalar_type(), " of ", tensor.dim());
    std::vector<Element> result(static_cast<size_t>(tensor.numel()));
    if (!result.empty()) std::memcpy(result.data(), tensor.const_data_ptr(), result.size() * sizeof(Element));
    return result;
  }

  std::string meta(const std::string& key) const {
    const auto found = file_.metadata.find(key);
    return found == file_.metadata.end() ? "" : found->second;
  }

  uint64_t number(const std::string& text) const {
    expect(!text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos,
           "metadata size to be a number; found '", text, "'");
    return std::stoull(text);
  }

  template <typename... Parts>
  void expect(bool holds, const Parts&... parts) const {
    TORCH_CHECK_VALUE(holds, "load_byte_examples: ", path_, ": expected ", parts...,
                      ". Make it again with: edgewise data ", task_);
  }

  std::string path_;
  std::string task_;
  io::TensorFile file_;
};

}  // namespace

std::span<const uint8_t> ByteExamples::sequence(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  const int64_t begin = i == 0 ? 0 : ends[i - 1];
  return std::span(bytes).subspan(static_cast<size_t>(begin), static_cast<size_t>(ends[i] - begin));
}

int32_t ByteExamples::add_sequence(std::span<const uint8_t> content) {
  bytes.insert(bytes.end(), content.begin(), content.end());
  ends.push_back(static_cast<int64_t>(bytes.size()));
  return static_cast<int32_t>(ends.size() - 1);
}

void ByteExamples::add_example(Split split, std::span<const int32_t> of_sequences, int64_t label) {
  TORCH_CHECK_VALUE(static_cast<int64_t>(of_sequences.size()) == towers && label >= 0 && label <= 255,
                    "ByteExamples: expected ", towers, " sequence(s) and a label in 0..255; got ",
                    of_sequences.size(), " and ", label);
  Part& added = part(split);
  added.sequences.insert(added.sequences.end(), of_sequences.begin(), of_sequences.end());
  added.labels.push_back(static_cast<uint8_t>(label));
}

void ByteExamples::add_example(Split split, std::span<const uint8_t> content, int64_t label) {
  const int32_t sequence = add_sequence(content);
  add_example(split, {&sequence, 1}, label);
}

std::filesystem::path byte_examples_path(const std::filesystem::path& folder, const std::string& task) {
  return folder / (task + ".safetensors");
}

void save_byte_examples(const std::filesystem::path& folder, const ByteExamples& examples,
                        const ByteExamplesSaveOptions& options) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  TORCH_CHECK(!failure, "save_byte_examples: cannot make the folder '", folder.string(),
              "': ", failure.message(), ". Choose one that can be written.");
  std::vector<int32_t> lengths(examples.ends.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = static_cast<int32_t>(examples.ends[i] - (i == 0 ? 0 : examples.ends[i - 1]));
  }
  const std::vector<uint8_t> compressed =
      options.compress ? xz_compress(examples.bytes) : std::vector<uint8_t>();
  const std::vector<uint8_t>& stored = options.compress ? compressed : examples.bytes;

  io::TensorFile file;
  file.metadata = {{"format", kFormat},
                   {"task", examples.task},
                   {"source", examples.source},
                   {"size", std::to_string(examples.bytes.size())},
                   {"crc32", crc32_text(examples.bytes)}};
  file.tensors[options.compress ? "bytes.xz" : "bytes"] =
      view(stored, {static_cast<int64_t>(stored.size())}, at::kByte);
  file.tensors["lengths"] = view(lengths, {static_cast<int64_t>(lengths.size())}, at::kInt);
  for (const Split split : kSplits) {
    const ByteExamples::Part& part = examples.part(split);
    const int64_t n = examples.size(split);
    file.tensors[split_name(split, "sequences")] = view(part.sequences, {n, examples.towers}, at::kInt);
    file.tensors[split_name(split, "labels")] = view(part.labels, {n}, at::kByte);
  }
  io::save_safetensors(byte_examples_path(folder, examples.task), file);
}

std::string byte_examples_checksum(const ByteExamples& examples) {
  return crc32_text(examples.bytes);
}

ByteExamples load_byte_examples(const std::filesystem::path& folder, const std::string& task) {
  return Reader(byte_examples_path(folder, task).string(), task).read();
}

}  // namespace edgewise::data
