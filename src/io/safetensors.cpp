// Reading and writing safetensors files; the header's JSON is read in safetensors_header.cpp.
#include <edgewise/io/safetensors.h>

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include <edgewise/io/atomic_file.h>
#include <edgewise/io/file_descriptor.h>

#include "io/crc32c.h"
#include "io/file_error.h"
#include "io/safetensors_dtype.h"
#include "io/safetensors_header.h"

namespace edgewise::io {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

struct OpenFile {
  FileDescriptor file;
  SafetensorsHeader header;
};

OpenFile open_safetensors(const std::filesystem::path& path) {
  const std::string name = path.string();
  // Non-blocking only so that a named pipe is refused below instead of waited for.
  FileDescriptor file = open_file("load_safetensors", path, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw_file_error(errno, "load_safetensors", "cannot inspect", path);
  TORCH_CHECK_VALUE(S_ISREG(info.st_mode), "load_safetensors: '", name, "' is not a regular file");
  const auto file_size = static_cast<uint64_t>(info.st_size);

  uint64_t header_size = 0;
  const auto prefix = std::as_writable_bytes(std::span(&header_size, 1));
  TORCH_CHECK_VALUE(read_up_to("load_safetensors", file, path, prefix) == prefix.size(),
                    "load_safetensors: '", name, "' holds ", file_size,
                    " bytes, too few for a safetensors file");
  TORCH_CHECK_VALUE(header_size <= kLargestSafetensorsHeader, "load_safetensors: '", name,
                    "' claims a header of ", header_size, " bytes, more than the format's limit of ",
                    kLargestSafetensorsHeader, "; this is not a safetensors file");
  TORCH_CHECK_VALUE(file_size >= prefix.size() && header_size <= file_size - prefix.size(),
                    "load_safetensors: '", name, "' claims a header of ", header_size,
                    " bytes but holds only ", file_size,
                    " in all; it is truncated or not a safetensors file");
  std::string json(header_size, '\0');
  TORCH_CHECK_VALUE(
      read_up_to("load_safetensors", file, path, std::as_writable_bytes(std::span(json))) == json.size(),
      "load_safetensors: '", name, "' ended while its header was read");

  const uint64_t data_offset = prefix.size() + header_size;
  OpenFile open{std::move(file), parse_safetensors_header(name, json, file_size - data_offset)};
  open.header.data_offset = data_offset;
  return open;
}

// A C++ bool of any other value is undefined behaviour waiting in every kernel that reads it.
void check_bools(const std::string& file, const std::string& name, const at::Tensor& tensor) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
  TORCH_CHECK_VALUE(std::all_of(bytes, bytes + tensor.numel(), [](uint8_t byte) { return byte <= 1; }),
                    "load_safetensors: '", file, "': BOOL tensor '", name,
                    "' holds bytes other than 0 and 1; the file is damaged");
}

at::Tensor checked_tensor(const std::string& name, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(name != "__metadata__",
                    "save_safetensors: a tensor cannot be named '__metadata__'; rename it");
  TORCH_CHECK_VALUE(tensor.defined(), "save_safetensors: tensor '", name, "' is undefined; leave it out");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "save_safetensors: tensor '", name, "' has layout ",
                    tensor.layout(), ", expected a dense tensor; call to_dense() first");
  TORCH_CHECK_VALUE(safetensors_rank(tensor.scalar_type()), "save_safetensors: tensor '", name,
                    "' has dtype ", tensor.scalar_type(), ", which the format cannot hold; convert it first");
  return tensor.detach();
}

using NamedTensor = std::pair<std::string, at::Tensor>;

// The reference writer's order, so that equal contents give equal files whoever wrote them.
std::vector<NamedTensor> in_file_order(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<NamedTensor> order;
  order.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) order.emplace_back(name, checked_tensor(name, tensor));
  std::stable_sort(order.begin(), order.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return *safetensors_rank(a.second.scalar_type()) > *safetensors_rank(b.second.scalar_type());
  });
  return order;
}

constexpr const char* kChecksums = "edgewise.crc32c";

uint32_t checksum_of(const at::Tensor& plain) {
  return crc32c({static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()});
}
// What is said of a tensor beside its numbers.
std::string entry_text(const std::string& name, at::ScalarType dtype, at::IntArrayRef shape) {
  std::string text = name + '\0' + std::to_string(static_cast<int>(dtype));
  for (const int64_t size : shape) text += ' ' + std::to_string(size);
  return text + '\0';
}
// entries: of all tensors, in the order of the file.
uint32_t checksum_of(const std::map<std::string, std::string>& metadata, std::string entries) {
  std::string text = std::move(entries);
  for (const auto& [name, value] : metadata)
    if (name != kChecksums) text.append(name).append(1, '\0').append(value).append(1, '\0');
  return crc32c(text);
}

std::string hexadecimal(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

// What the metadata says of every tensor; checks what it says of itself.
std::map<std::string, uint32_t> checksums_in(const std::string& file, const SafetensorsHeader& header) {
  const auto found = header.metadata.find(kChecksums);
  if (found == header.metadata.end()) return {};
  const std::string& text = found->second;
  std::vector<std::pair<std::string, TensorEntry>> order(header.tensors.begin(), header.tensors.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {  // as in_file_order
    return *safetensors_rank(a.second.dtype) > *safetensors_rank(b.second.dtype);
  });
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  TORCH_CHECK_VALUE(text.size() == 8 * (order.size() + 1) && std::all_of(text.begin(), text.end(), is_digit),
                    "load_safetensors: '", file, "': expected ", order.size() + 1,
                    " checksums in its metadata; found other text. The file is damaged");
  std::string entries;
  for (const auto& [name, entry] : order) entries += entry_text(name, entry.dtype, entry.shape);
  const auto number = [&](size_t n) {
    return static_cast<uint32_t>(std::stoul(text.substr(8 * n, 8), nullptr, 16));
  };
  TORCH_CHECK_VALUE(number(order.size()) == checksum_of(header.metadata, entries), "load_safetensors: '",
                    file,
                    "': its header does not have the checksum that was written with it; the file is damaged");
  std::map<std::string, uint32_t> result;
  for (size_t n = 0; n < order.size(); ++n) result[order[n].first] = number(n);
  return result;
}

std::string make_header(const std::vector<NamedTensor>& order,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t position = 0;
  for (const auto& [name, tensor] : order) {
    const uint64_t end = position + tensor.nbytes();
    const auto dtype = kSafetensorsDtypes[*safetensors_rank(tensor.scalar_type())].name;
    // Not header[name]: that searches every entry before it.
    header.push_back(
        {name, {{"dtype", dtype}, {"shape", tensor.sizes().vec()}, {"data_offsets", {position, end}}}});
    position = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error&) {
    TORCH_CHECK_VALUE(false,
                      "save_safetensors: a tensor name or metadata text is not valid UTF-8; rename it");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  TORCH_CHECK_VALUE(text.size() <= kLargestSafetensorsHeader, "save_safetensors: the header takes ",
                    text.size(), " bytes, more than the format's limit of ", kLargestSafetensorsHeader,
                    "; shorten the metadata or split the file");
  return text;
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const TensorFile& file, bool checksums) {
  std::vector<NamedTensor> order = in_file_order(file.tensors);
  const auto plain_of = [](const at::Tensor& tensor) {
    return tensor.to(at::kCPU).resolve_conj().resolve_neg().contiguous();
  };
  std::map<std::string, std::string> metadata = file.metadata;
  metadata.erase(kChecksums);  // of a file that was read, perhaps with other tensors
  if (checksums) {
    std::string text, entries;
    for (auto& [name, tensor] : order) {
      tensor = plain_of(tensor);  // what is written is what was summed up
      text += hexadecimal(checksum_of(tensor));
      entries += entry_text(name, tensor.scalar_type(), tensor.sizes());
    }
    metadata[kChecksums] = text + hexadecimal(checksum_of(metadata, entries));
  }
  const std::string header = make_header(order, metadata);
  AtomicFile out(path);
  const uint64_t header_size = header.size();
  out.write(std::as_bytes(std::span(&header_size, 1)));
  out.write(header);
  for (const auto& [name, tensor] : order) {
    const at::Tensor plain = plain_of(tensor);
    out.write({static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()});
  }
  out.commit();
}

SafetensorsReader::SafetensorsReader(std::filesystem::path path) : path_(std::move(path)) {
  OpenFile open = open_safetensors(path_);
  file_ = std::move(open.file);
  header_ = std::move(open.header);
  checksums_ = checksums_in(path_.string(), header_);
}

at::Tensor SafetensorsReader::tensor(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  TORCH_CHECK_VALUE(found != header_.tensors.end(), "load_safetensors: '", path_.string(),
                    "': expected a tensor '", name, "'; there is none");
  const TensorEntry& entry = found->second;
  at::Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype));
  const std::span<std::byte> bytes(static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes());
  TORCH_CHECK_VALUE(
      read_at("load_safetensors", file_, path_, bytes, header_.data_offset + entry.begin) == bytes.size(),
      "load_safetensors: '", path_.string(), "' ended while tensor '", name,
      "' was read; it changed under us");
  if (const auto sum = checksums_.find(name); sum != checksums_.end())
    TORCH_CHECK_VALUE(checksum_of(tensor) == sum->second, "load_safetensors: '", path_.string(),
                      "': tensor '", name,
                      "' does not have the checksum that was written with it; the file is damaged");
  if (entry.dtype == at::kBool) check_bools(path_.string(), name, tensor);
  return tensor;
}

TensorFile load_safetensors(const std::filesystem::path& path) {
  const SafetensorsReader reader(path);
  TensorFile result;
  result.metadata = reader.header().metadata;
  std::vector<const std::pair<const std::string, TensorEntry>*> order;
  for (const auto& item : reader.header().tensors) order.push_back(&item);
  // In the order of the file, so that one pass reads it.
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  for (const auto* item : order) result.tensors.emplace(item->first, reader.tensor(item->first));
  return result;
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  return open_safetensors(path).header;
}

}  // namespace edgewise::io
