// AtomicFile: a file appears under its name complete and on disk, or not at all. Bytes go to a hidden
// temporary file in the same folder; commit() syncs it, renames it over the target and syncs the folder. A
// kill or a full disk at any moment leaves the previous file as it was.
#pragma once

#include <edgewise/io/file_descriptor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace edgewise::io {

class AtomicFile {
 public:
  // Opens the temporary file. A target that is a symbolic link is replaced behind the link; an existing
  // file's mode is kept. Throws std::system_error if the folder cannot be written, the target is a directory,
  // or another AtomicFile is writing the same target.
  explicit AtomicFile(std::filesystem::path target);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();  // without commit(): removes the temporary file, the target stays as it was

  // Each throws std::system_error that names the target and the reason; the temporary file is then removed
  // and the object can no longer be used.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

  const std::filesystem::path& target() const { return target_; }

 private:
  FileDescriptor open_for_target() const;
  void open_temporary();
  void check_open(const char* caller) const;
  void discard() noexcept;

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  FileDescriptor file_;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

// The whole file, of any size and kind (pipes too). Throws std::system_error that names the path and the
// reason.
std::string read_file(const std::filesystem::path& path);

// The same of a text that people write, such as a recipe: a regular file of at most `most` bytes without NUL,
// which is what a power cut leaves in place of text. Throws c10::ValueError otherwise.
std::string read_text(const std::filesystem::path& path, uint64_t most = uint64_t{4} << 20);

}  // namespace edgewise::io
