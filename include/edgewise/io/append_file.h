// AppendFile: a log that only grows. Each append() reaches the kernel before it returns, so a killed process
// loses nothing it has reported; a failed append is taken back, so the log never holds half a record followed
// by another.
#pragma once

#include <edgewise/io/file_descriptor.h>

#include <filesystem>
#include <string_view>

namespace edgewise::io {

class AppendFile {
 public:
  enum class Open { kCreateOrAppend, kCreateNew };

  explicit AppendFile(std::filesystem::path path, Open mode = Open::kCreateOrAppend);

  void append(std::string_view bytes);  // throws std::system_error that names the file and the reason
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace edgewise::io
