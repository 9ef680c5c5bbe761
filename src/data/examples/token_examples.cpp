#include <edgewise/data/examples/token_examples.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <edgewise/io/safetensors.h>

#include "data/readers/compressed.h"

namespace edgewise::data {
namespace {

constexpr const char* kTokenFormat = "edgewise.token_examples.1";
constexpr std::array<Split, 3> kParts = {Split::kTrain, Split::kValidation, Split::kTest};

std::string name_of(Split split, const char* field) {
  return std::string(to_string(split)) + "." + field;
}

template <typename Element>
at::Tensor list_view(const std::vector<Element>& values) {
  return at::from_blob(const_cast<Element*>(values.data()), {static_cast<int64_t>(values.size())},
                       at::TensorOptions().dtype(c10::CppTypeToScalarType<Element>::value));
}

std::string checksum(const std::vector<int32_t>& tokens) {
  return crc32_text({reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size() * sizeof(int32_t)});
}

// Reads the tensors of one file; knows its name, so that an error can say so.
class TokenFileReader {
 public:
  TokenFileReader(const std::filesystem::path& path, const TextReader& reader)
      : path_(path.string()), reader_(reader), file_(io::load_safetensors(path)) {
    expect(meta("format") == kTokenFormat, "metadata format = ", kTokenFormat, "; found '", meta("format"),
           "'");
  }

  TokenExamples read() {
    TokenExamples examples;
    examples.source = meta("source");
    for (const Split split : kParts) read_part(examples.part(split), split);
    return examples;
  }

 private:
  void read_part(TokenExamples::Part& part, Split split) {
    part.tokens = values<int32_t>(name_of(split, "tokens"));
    const std::string sum = checksum(part.tokens), stated = meta(name_of(split, "crc32"));
    expect(sum == stated, "tokens of CRC-32 ", stated, " in ", to_string(split), "; found ", sum,
           "; the file is damaged");
    for (const int32_t token : part.tokens)
      expect(token >= 0 && token < reader_.vocabulary(), "token ids below ", reader_.vocabulary(),
             ", as the tokeniser beside the file has; found ", token);
    part.lengths = values<int32_t>(name_of(split, "lengths"));
    int64_t tokens = 0;
    for (const int32_t length : part.lengths) {
      expect(length >= 1, "lengths of at least 1; found ", length);
      tokens += length;
    }
    expect(tokens == std::ssize(part.tokens), "lengths that add up to ", part.tokens.size(), " in ",
           to_string(split), "; found ", tokens);
    part.lines = values<int32_t>(name_of(split, "lines"));
    expect(part.lines.size() == part.lengths.size(), part.lengths.size(), " lines in ", to_string(split),
           "; found ", part.lines.size());
    const std::string bytes = meta(name_of(split, "bytes"));
    expect(!bytes.empty() && bytes.size() < 19 && bytes.find_first_not_of("0123456789") == std::string::npos,
           "metadata ", name_of(split, "bytes"), " to be a number; found '", bytes, "'");
    part.bytes = std::stoll(bytes);
    read_answers(part, split);
  }

  void read_answers(TokenExamples::Part& part, Split split) {
    const std::string name = name_of(split, "answers");
    const TextReaderOptions& options = reader_.options();
    if (options.answer == AnswerKind::kNone) return;
    if (options.answer == AnswerKind::kClass) {
      for (const int32_t answer : values<int32_t>(name)) {
        expect(answer >= 0 && answer < std::ssize(options.classes), name, " below ", options.classes.size(),
               "; found ", answer);
        part.answers.push_back(answer);
      }
    } else {
      for (const float answer : values<float>(name)) {
        expect(std::isfinite(answer), "finite ", name, "; found ", answer);
        part.answers.push_back(answer);
      }
    }
    expect(part.answers.size() == part.lengths.size(), part.lengths.size(), " ", name, "; found ",
           part.answers.size());
  }

  template <typename Element>
  std::vector<Element> values(const std::string& name) {
    const auto found = file_.tensors.find(name);
    expect(found != file_.tensors.end(), "a tensor '", name, "'; found none");
    const at::Tensor& tensor = found->second;
    expect(tensor.scalar_type() == c10::CppTypeToScalarType<Element>::value && tensor.dim() == 1, "tensor '",
           name, "' to be a list of ", c10::CppTypeToScalarType<Element>::value, "; found ",
           tensor.scalar_type(), " ", tensor.sizes());
    std::vector<Element> result(static_cast<size_t>(tensor.numel()));
    if (!result.empty()) std::memcpy(result.data(), tensor.const_data_ptr(), result.size() * sizeof(Element));
    return result;
  }

  std::string meta(const std::string& key) const {
    const auto found = file_.metadata.find(key);
    return found == file_.metadata.end() ? "" : found->second;
  }

  template <typename... Parts>
  void expect(bool holds, const Parts&... parts) const {
    TORCH_CHECK_VALUE(holds, path_, ": expected ", parts...,
                      ". Make it again with: edgewise data tsv, jsonl or text");
  }

  std::string path_;
  const TextReader& reader_;
  io::TensorFile file_;
};

}  // namespace

void TokenExamples::Part::add(std::span<const int32_t> ids, int64_t line) {
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  lengths.push_back(static_cast<int32_t>(ids.size()));
  lines.push_back(static_cast<int32_t>(line));
}

std::filesystem::path token_examples_path(const std::filesystem::path& folder) {
  return folder / "examples.safetensors";
}

std::filesystem::path text_reader_path(const std::filesystem::path& folder) {
  return folder / "reader";
}

void save_token_examples(const std::filesystem::path& folder, const TokenExamples& examples,
                         const TextReader& reader) {
  reader.save(text_reader_path(folder));
  const bool are_classes = reader.options().answer == AnswerKind::kClass;
  std::array<std::vector<int32_t>, 3> classes;
  std::array<std::vector<float>, 3> numbers;
  io::TensorFile file;
  file.metadata = {{"format", kTokenFormat}, {"source", examples.source}};
  for (const Split split : kParts) {
    const TokenExamples::Part& part = examples.part(split);
    const auto place = static_cast<size_t>(split);
    file.tensors[name_of(split, "tokens")] = list_view(part.tokens);
    file.tensors[name_of(split, "lengths")] = list_view(part.lengths);
    file.tensors[name_of(split, "lines")] = list_view(part.lines);
    file.metadata[name_of(split, "bytes")] = std::to_string(part.bytes);
    file.metadata[name_of(split, "crc32")] = checksum(part.tokens);
    if (reader.options().answer == AnswerKind::kNone) continue;
    classes[place].assign(part.answers.begin(), part.answers.end());
    numbers[place].assign(part.answers.begin(), part.answers.end());
    file.tensors[name_of(split, "answers")] =
        are_classes ? list_view(classes[place]) : list_view(numbers[place]);
  }
  io::save_safetensors(token_examples_path(folder), file);
}

TokenExamples load_token_examples(const std::filesystem::path& folder, const TextReader& reader) {
  return TokenFileReader(token_examples_path(folder), reader).read();
}

}  // namespace edgewise::data
