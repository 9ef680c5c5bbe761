// safetensors files: named tensors and string metadata, the format of the Hugging Face package of that name.
//
// A file is u64 N, N bytes of JSON (dtype, shape and byte range of every tensor), then the tensors' bytes.
// The writer's bytes equal the Python package's. With checksums the metadata has one more entry,
// "edgewise.crc32c": of every tensor in the order of the file the CRC-32C of its bytes, then that of their
// names, dtypes and shapes and of the other metadata, eight hexadecimal digits each. The reader compares them
// where they are there. It believes nothing it has not checked against the size of the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <edgewise/io/file_descriptor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace edgewise::io {

struct TensorFile {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

struct TensorEntry {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // byte range within the data, [begin, end)
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // where the data starts in the file
};

// Writes atomically: `path` holds the old file or the whole new one. Tensors may be on any device and have
// any strides; each is copied to contiguous CPU memory when its turn comes. Tensors that share memory are
// written once each. Dtypes: bool, all integers, float16/32/64, bfloat16, float8, complex64. Throws
// c10::ValueError for a tensor or name the format cannot hold, std::system_error if the file cannot be
// written.
void save_safetensors(const std::filesystem::path& path, const TensorFile& file, bool checksums = false);

// Tensors are contiguous, on the CPU and own their memory. Throws c10::ValueError that names the file and
// what is wrong with it, std::system_error if it cannot be read. Never allocates more than the size of the
// file warrants.
TensorFile load_safetensors(const std::filesystem::path& path);

// An open file whose tensors are read one by one. Replacing the file changes nothing for it.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(std::filesystem::path path);  // the same checks, the same errors

  const SafetensorsHeader& header() const { return header_; }
  bool has(const std::string& name) const { return header_.tensors.contains(name); }
  at::Tensor tensor(const std::string& name) const;  // thread-safe
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  SafetensorsHeader header_;
  std::map<std::string, uint32_t> checksums_;  // empty = the file has none
};

// Names, dtypes and shapes without the data; the same checks, the same errors.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

}  // namespace edgewise::io
